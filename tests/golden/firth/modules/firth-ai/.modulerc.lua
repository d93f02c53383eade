-- modulefiles_src/.modulerc.lua.j2 and firth.yaml: change those and render again.
module_version("firth-ai/25.03-rocm6.2", "default")
