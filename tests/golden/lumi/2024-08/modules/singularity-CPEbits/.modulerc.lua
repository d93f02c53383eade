-- modulefiles_src/.modulerc.lua.j2 and lumi.yaml: change those and render again.
module_version("singularity-CPEbits/23.09", "default")
