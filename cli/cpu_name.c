/* The first "model name" of /proc/cpuinfo. */
#include "cpu_name.h"

#include <stdio.h>
#include <string.h>

const char *cpu_name(char text[128]) {
    static const char key[] = "model name";
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(text, 128, "unnamed");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, key, sizeof key - 1) != 0 || !value) continue;
        value += strspn(value, ": \t");
        snprintf(text, 128, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f) fclose(f);
    return text;
}
