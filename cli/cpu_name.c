/* Name, family and model of the first processor in /proc/cpuinfo. */
#include "cpu_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of a line `key : value`, or NULL where the line has another key. */
static char *value_of(char *line, const char *key) {
    char *value = strchr(line, ':');
    const size_t n = strlen(key);
    if (!value || strncmp(line, key, n) != 0 || line + n + strspn(line + n, " \t") != value)
        return NULL;
    value += strspn(value, ": \t");
    value[strcspn(value, "\n")] = '\0';
    return value;
}

const char *cpu_name(char text[128]) {
    char line[256], name[96] = "unnamed";
    int family = -1, model = -1;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        const char *value;
        if ((value = value_of(line, "cpu family"))) family = atoi(value);
        else if ((value = value_of(line, "model"))) model = atoi(value);
        else if ((value = value_of(line, "model name"))) snprintf(name, sizeof name, "%s", value);
    }
    if (f) fclose(f);
    if (family < 0 || model < 0) snprintf(text, 128, "%s", name);
    else snprintf(text, 128, "%s (family %d, model %d)", name, family, model);
    return text;
}
