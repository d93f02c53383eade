-- modulefiles_src/.modulerc.lua.j2 and lumi.yaml: change those and render again.
module_version("singularity-AI-bindings/23.09-rocm6.0", "default")
