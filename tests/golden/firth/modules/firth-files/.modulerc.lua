-- modulefiles_src/.modulerc.lua.j2 and firth.yaml: change those and render again.
module_version("firth-files/2026-01", "default")
