... cli_filter.lua
---- the site's data, from firth.yaml: change that and render again
site = {
  release = "RELEASE",
  root = "/opt/lumisite",
  images = {
  },
  needs = {
  },
}
lumisite.release = site.release
return lumisite
