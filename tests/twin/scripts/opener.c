/* A program that opens libraries in turn, as Python does, and says what is in its process then. An argument is a path or
   a name; behind `@` is what an object that is there already opens next: `@librccl.so.1 librccl-net.so`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

typedef void *(*opener)(const char *);

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (words[i][0] != '@') {
            if (!dlopen(words[i], RTLD_LAZY))
                printf("failed %s: %s\n", words[i], dlerror());
            continue;
        }
        void *caller = dlopen(words[i] + 1, RTLD_LAZY | RTLD_NOLOAD);
        opener open_for = caller ? (opener)dlsym(caller, "open_for_caller") : 0;
        const char *name = words[++i];
        if (!open_for || !open_for(name))
            printf("failed %s: %s\n", name, open_for ? dlerror() : "nothing opens it");
    }
    struct link_map *map;
    for (dlinfo(dlopen(0, RTLD_LAZY), RTLD_DI_LINKMAP, &map); map; map = map->l_next)
        printf("loaded %s\n", map->l_name);
    return 0;
}
