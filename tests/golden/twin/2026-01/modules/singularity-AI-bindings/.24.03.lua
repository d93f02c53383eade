-- modulefiles_src/_old_name.lua.j2 and twin.yaml: change those and render again.
-- Hidden; .modulerc.lua leads the old name here. Lmod loads the new version in its place.

help([=[
singularity-AI-bindings/24.03 is an old name of
singularity-AI-bindings/25.03-rocm6.2, which is loaded instead.

Support: the developers of lumisite
  docs/explanation/twin.md
]=])
whatis("Description: singularity-AI-bindings/24.03 is an old name of singularity-AI-bindings/25.03-rocm6.2, which is loaded instead.")
if mode() == "load" then LmodMessage("singularity-AI-bindings/24.03 is an old name of singularity-AI-bindings/25.03-rocm6.2, which is loaded instead.") end
load("singularity-AI-bindings/25.03-rocm6.2")
