... cli_filter.lua
---- the site's data, from twin.yaml: change that and render again
site = {
  release = "RELEASE",
  name = "twin", root = "/appl/lumisite",
  ask = "the developers of lumisite, docs/explanation/twin.md",
  images = {
    { pattern = "^/appl/images/.*$" },
  },
  needs = {
  },
}
lumisite.release = site.release
return lumisite
