-- modulefiles_src/.modulerc.lua.j2 and lumi.yaml: change those and render again.
module_version("singularity-AI-bindings/25.03-rocm6.2", "default")
