/* A greedy cover: each combination starts from a pair that is still missing and takes, factor by
 * factor, the choice that covers most missing pairs. Some hundred combinations, not the fewest
 * possible. */
#include "pairwise.h"

#include <string.h>

#include "harness.h"

struct cover {
    const struct pairwise *p;
    struct test_random random;
    /* Pair of (fa, a) and (fb, b) with fa < fb still to be covered. */
    bool missing[PAIRWISE_MAX_FACTORS][PAIRWISE_MAX_CHOICES][PAIRWISE_MAX_FACTORS]
                [PAIRWISE_MAX_CHOICES];
};

static bool *pair_of(struct cover *c, int fa, int a, int fb, int b) {
    return fa < fb ? &c->missing[fa][a][fb][b] : &c->missing[fb][b][fa][a];
}

static bool goes_with(const struct pairwise *p, int fa, int a, int fb, int b) {
    return fa < fb ? p->allowed(fa, a, fb, b) : p->allowed(fb, b, fa, a);
}

/* Missing pairs that choice a of factor f makes with what is chosen (-1: not yet); -1 when it does
 * not go with that. */
static int gain(struct cover *c, const int *choice, int f, int a) {
    int n = 0;
    for (int other = 0; other < c->p->n_factors; other++) {
        if (other == f || choice[other] < 0) continue;
        if (!goes_with(c->p, f, a, other, choice[other])) return -1;
        n += *pair_of(c, f, a, other, choice[other]);
    }
    return n;
}

/* Fills in the factors that have no choice yet. False: what is chosen lets some factor have
 * none. */
static bool complete(struct cover *c, int *choice) {
    const int n = c->p->n_factors, start = (int)test_random_int(&c->random, 0, n - 1);
    for (int i = 0; i < n; i++) {
        const int f = (start + i) % n;
        if (choice[f] >= 0) continue;
        const int turn = (int)test_random_int(&c->random, 0, c->p->n_choices[f] - 1);
        int best = -1, best_gain = -1;
        for (int k = 0; k < c->p->n_choices[f]; k++) {
            const int a = (k + turn) % c->p->n_choices[f], g = gain(c, choice, f, a);
            if (g > best_gain) {
                best = a;
                best_gain = g;
            }
        }
        if (best < 0) return false;
        choice[f] = best;
    }
    return true;
}

static void strike_out(struct cover *c, const int *choice) {
    for (int fa = 0; fa < c->p->n_factors; fa++)
        for (int fb = fa + 1; fb < c->p->n_factors; fb++)
            c->missing[fa][choice[fa]][fb][choice[fb]] = false;
}

/* Combinations from one missing pair; gives it up after some tries (constraints of three
 * factors). */
static bool cover_pair(struct cover *c, int fa, int a, int fb, int b,
                       void (*visit)(const int *choice)) {
    for (int tries = 0; tries < 20 && c->missing[fa][a][fb][b]; tries++) {
        int choice[PAIRWISE_MAX_FACTORS];
        for (int f = 0; f < c->p->n_factors; f++) choice[f] = -1;
        choice[fa] = a;
        choice[fb] = b;
        if (!complete(c, choice)) continue;
        strike_out(c, choice);
        visit(choice);
    }
    return !c->missing[fa][a][fb][b];
}

int pairwise_cover(const struct pairwise *p, uint64_t seed, void (*visit)(const int *choice)) {
    static struct cover c;
    int n_given_up = 0;
    memset(&c, 0, sizeof c);
    c.p = p;
    c.random.state = seed;
    for (int pass = 0; pass < 2; pass++) /* first list the pairs, then cover them */
        for (int fa = 0; fa < p->n_factors; fa++)
            for (int fb = fa + 1; fb < p->n_factors; fb++)
                for (int a = 0; a < p->n_choices[fa]; a++)
                    for (int b = 0; b < p->n_choices[fb]; b++) {
                        if (pass == 0) c.missing[fa][a][fb][b] = p->allowed(fa, a, fb, b);
                        else n_given_up += !cover_pair(&c, fa, a, fb, b, visit);
                    }
    return n_given_up;
}
