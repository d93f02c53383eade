/* A library that opens others itself, so that the loader goes by its search path. */
#include <dlfcn.h>

void *open_for_caller(const char *name)
{
    return dlopen(name, RTLD_LAZY);
}
