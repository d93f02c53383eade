-- modulefiles_src/_old_name.lua.j2 and firth.yaml: change those and render again.
-- Hidden; .modulerc.lua leads the old name here. Lmod loads the new version in its place.

help([=[
firth-ai/24.03 is an old name of firth-ai/25.03-rocm6.2, which is loaded
instead.

Support: Firth's "help" desk
  help@firth.example
]=])
whatis("Description: firth-ai/24.03 is an old name of firth-ai/25.03-rocm6.2, which is loaded instead.")
if mode() == "load" then LmodMessage("firth-ai/24.03 is an old name of firth-ai/25.03-rocm6.2, which is loaded instead.") end
load("firth-ai/25.03-rocm6.2")
