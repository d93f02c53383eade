-- modulefiles_src/.modulerc.lua.j2 and twin.yaml: change those and render again.
module_version("singularity-CPEbits/25.03", "default")
