/* Printing of the demo. */
#include "demo_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"

enum { LINE = 96 };

int refuse_demo(const char *format, ...) {
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return complain(sentence);
}

int refuse_status(const char *what, enum ptl_status status) {
    if (status == PTL_ERR_NOMEM) return refuse_demo("%s: not enough memory", what);
    return refuse_demo("%s: %s: %s", what, ptl_status_name(status), ptl_message());
}

void print_text(const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *at = text;
    while (strlen(at) > LINE) {
        int n = LINE;
        while (n > 0 && at[n] != ' ') n--;
        if (n == 0) n = LINE;
        printf("%.*s\n", n, at);
        at += n + (at[n] == ' ');
    }
    puts(at);
}

const char *format_count(char *cell, int64_t n) {
    char digits[CELL];
    int length = snprintf(digits, CELL, "%lld", (long long)n), out = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) cell[out++] = ',';
        cell[out++] = digits[i];
    }
    cell[out] = 0;
    return cell;
}

const char *format_bytes(char *cell, int64_t bytes) {
    const double mib = (double)bytes / (1 << 20);
    if (mib < 9.995) snprintf(cell, CELL, "%.2f MiB", mib);
    else if (mib < 1024) snprintf(cell, CELL, "%.0f MiB", mib);
    else snprintf(cell, CELL, "%.2f GiB", mib / 1024);
    return cell;
}

const char *format_time(char *cell, double seconds) {
    if (seconds < 0.0009995) snprintf(cell, CELL, "%.0f us", seconds * 1e6);
    else if (seconds < 0.0995) snprintf(cell, CELL, "%.1f ms", seconds * 1e3);
    else if (seconds < 0.9995) snprintf(cell, CELL, "%.0f ms", seconds * 1e3);
    else snprintf(cell, CELL, "%.2f s", seconds);
    return cell;
}

const char *format_factor(char *cell, double factor) {
    snprintf(cell, CELL, factor < 9.995 ? "%.2fx" : "%.1fx", factor);
    return cell;
}

void print_cells(char cells[][CELL], const int *widths, int n, bool markdown) {
    for (int c = 0; c < n; c++) {
        if (markdown) printf("| %s ", cells[c]);
        else printf("%*s", widths[c], cells[c]);
    }
    puts(markdown ? "|" : "");
}

void print_rule(int n, bool markdown) {
    if (!markdown) return;
    for (int c = 0; c < n; c++) fputs(c == 0 ? "|:---" : "|---:", stdout);
    puts("|");
}

void show_progress(const char *what) {
    fprintf(stderr, "\r\033[K%s", what);
    fflush(stderr);
}
