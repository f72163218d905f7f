/* A small test harness: named tests in suites, counted cases, name filters, one summary line.
 * It knows nothing of what is tested except the CPU levels that a test may ask for. */
#ifndef PTL_TESTS_HARNESS_H
#define PTL_TESTS_HARNESS_H

#include <pantile/base.h>
#include <stdbool.h>

/* A test is a function. It counts as one, or, when it calls test_case, as many as it begins. The
 * test named "line" runs for --line and only then. */
struct test {
    const char *name;
    void (*run)(void);
};

/* Tests that share a theme; each file of tests offers one suite. Full names are "theme/name". */
struct test_suite {
    const char *theme;
    const struct test *tests;
    int n_tests;
};

#define TEST_SUITE(suite, theme, list)                                                             \
    const struct test_suite suite = {theme, list, (int)(sizeof(list) / sizeof((list)[0]))}

/* main: runs what the arguments select, prints failures and the summary, returns the exit
 * status. */
int test_main(int argc, char **argv, const struct test_suite *const *suites, int n_suites);

/* ---- Inside a test --------------------------------------------------------------------------- */

/* Begins a counted case. The text tells how to see a failure again: a problem line, sizes, a
 * seed. */
void test_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says what the current case is at now, for failures and crashes; counts nothing. */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The current case fails; the test goes on. Only the first failures of a case are printed. */
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The current case, or the whole test, cannot run here. Said aloud. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) FAIL("%s", #condition);                                                  \
    } while (0)

bool test_case_failed(void); /* the current case has failed already */

bool test_quick(void);       /* --quick: a few small cases, for sanitizers and emulators */
bool test_bench(void);       /* --bench: time kernels instead of checking them */
const char *test_line(void); /* --line: the one problem to check, or NULL */

/* The CPU levels to test: those of this architecture that the CPU has and PTL_CPU allows. The
 * others are announced by the harness. */
int test_n_levels(void);
enum ptl_isa test_level(int i);

/* Levels of this architecture that are left out. */
int test_n_missing_levels(void);
enum ptl_isa test_missing_level(int i);

/* Sanitizers in this build: gcc and clang tell in different ways. */
#if defined(__has_feature)
#define TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define TEST_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || TEST_HAS_FEATURE(address_sanitizer)
#define TEST_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__) || TEST_HAS_FEATURE(thread_sanitizer)
#define TEST_THREAD_SANITIZER
#endif

/* ---- Random numbers: the same on every machine ----------------------------------------------- */

struct test_random {
    uint64_t state;
};

uint64_t test_random_bits(struct test_random *r);
int64_t test_random_int(struct test_random *r, int64_t low, int64_t high); /* both ends included */
float test_random_float(struct test_random *r);                            /* in [-1, 1) */

double test_seconds(void); /* of a steady clock */

#endif
