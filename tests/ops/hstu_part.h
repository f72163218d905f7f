/* A part of an HSTU problem as a problem of its own: some of its sequences, the last rows of each,
 * one head. All copied into plain jagged arrays, so that layouts, views and used lengths fall away:
 * what the part computes must be the rows of the whole, bit for bit. */
#ifndef PTL_TESTS_HSTU_PART_H
#define PTL_TESTS_HSTU_PART_H

#include <pantile/pantile.h>

#include "harness.h"

struct hstu_selection {
    const int64_t *seqs; /* which sequences, in this order; NULL: all */
    int64_t n_seqs;
    int64_t last_rows; /* of each sequence only so many last query rows; 0: all */
    int64_t head;      /* only this query head; -1: all */
    bool rule_as_mask; /* the rule becomes the dense mask that it means */
};

struct hstu_part {
    struct ptl_hstu_params p;
    void *memory[16];
    int n_memory;
};

void hstu_part_create(struct hstu_part *part, const struct ptl_hstu_params *whole,
                      const struct hstu_selection *s);
void hstu_part_destroy(struct hstu_part *part);

/* Fails the case unless the part's out holds the bits of the whole's; both in C order. */
void hstu_part_compare(const struct hstu_part *part, const float *part_out,
                       const struct ptl_hstu_params *whole, const float *whole_out,
                       const struct hstu_selection *s, const char *what);

#endif
