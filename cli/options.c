/* One pass over the arguments. */
#include "options.h"

#include <string.h>

static struct option *find_option(struct option *options, const char *name) {
    for (; options->name; options++)
        if (strcmp(options->name, name) == 0) return options;
    return NULL;
}

int take_options(int argc, char **argv, struct option *options, struct refusal *r) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            argv[++n] = argv[i];
            continue;
        }
        struct option *option = find_option(options, argv[i]);
        if (!option) {
            refuse(r, "'%.60s': unknown option, see 'pantile help %s'", argv[i], argv[0]);
            return -1;
        }
        if (++i == argc) {
            refuse(r, "%s: nothing behind it, see 'pantile help %s'", option->name, argv[0]);
            return -1;
        }
        option->value = argv[i];
    }
    return n;
}
