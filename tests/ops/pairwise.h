/* Combinations of choices that together hold every pair of choices: far fewer than all
 * combinations. It knows nothing of what is chosen. */
#ifndef PTL_TESTS_PAIRWISE_H
#define PTL_TESTS_PAIRWISE_H

#include <stdbool.h>
#include <stdint.h>

enum { PAIRWISE_MAX_FACTORS = 12, PAIRWISE_MAX_CHOICES = 32 };

struct pairwise {
    int n_factors;
    int n_choices[PAIRWISE_MAX_FACTORS];
    /* Whether choice `a` of factor `fa` goes with choice `b` of factor `fb`, fa < fb. */
    bool (*allowed)(int fa, int a, int fb, int b);
};

/* Calls visit for one combination after another (a choice for each factor) until every allowed pair
 * was in one. The same seed gives the same combinations. Returns the number of pairs that no
 * combination could hold although they are allowed. */
int pairwise_cover(const struct pairwise *p, uint64_t seed, void (*visit)(const int *choice));

#endif
