/* What the parts of the demo print alike: paragraphs, tables, numbers, refusals. */
#ifndef PTL_DEMO_TEXT_H
#define PTL_DEMO_TEXT_H

#include <pantile/pantile.h>
#include <stdbool.h>

enum { CELL = 64 }; /* characters of a cell and of a formatted number */

/* With less of its threads' time the process was not alone on the machine. */
#define UNDISTURBED 0.93

/* "pantile: ..." on stderr; returns the exit status. */
int refuse_demo(const char *format, ...) __attribute__((format(printf, 1, 2)));
int refuse_status(const char *what, enum ptl_status status);

/* A paragraph, in lines of at most 96 characters. */
void print_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A row of a table; a negative width is of a cell on the left. */
void print_cells(char cells[][CELL], const int *widths, int n, bool markdown);

/* Under the headings, where it is markdown: all columns but the first are numbers. */
void print_rule(int n, bool markdown);

/* Each writes cell and returns it. */
const char *format_count(char *cell, int64_t n);      /* 100,000 */
const char *format_bytes(char *cell, int64_t bytes);  /* 2.10 GiB */
const char *format_time(char *cell, double seconds);  /* 1.5 ms */
const char *format_factor(char *cell, double factor); /* 2.50x */

/* On a line of its own on stderr; "" clears it. */
void show_progress(const char *what);

#endif
