-- modulefiles_src/.modulerc.lua.j2 and firth.yaml: change those and render again.
module_version("firth-mpi/25.03", "default")
