... cli_filter.lua
---- the site's data, from firth.yaml: change that and render again
site = {
  release = "RELEASE",
  name = "firth", root = "/opt/lumisite",
  ask = "Firth's \"help\" desk, help@firth.example",
  images = {
  },
  needs = {
  },
}
lumisite.release = site.release
return lumisite
