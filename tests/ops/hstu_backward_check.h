/* Runs the gradients of an HSTU problem on every level, thread count and executor, and holds them
 * to the reference and to each other. */
#ifndef PTL_TESTS_HSTU_BACKWARD_CHECK_H
#define PTL_TESTS_HSTU_BACKWARD_CHECK_H

#include "hstu_check.h"

/* dq, dk, dv, dbias, dpos_table, dtime_table, ds in this order. */
enum { N_GRADS = 7 };
extern const char *const hstu_grad_names[N_GRADS];
const struct ptl_tensor *hstu_grad(const struct ptl_hstu_grads *g, int i);

/* The bound on the error of a gradient, of its largest element, for a type of q. */
double hstu_grad_bound(enum ptl_dtype type);

/* Elements of all gradients in C order, as floats; NULL: not wanted. */
struct hstu_grad_floats {
    float *grad[N_GRADS];
    int64_t n[N_GRADS];
};

struct hstu_grad_floats hstu_grad_floats_create(const struct ptl_hstu_grads *g);
void hstu_grad_floats_destroy(struct hstu_grad_floats *x);

/* Calls the library with all gradients full of GUARD_WORD and takes their elements out. False, with
 * the case failed, when the call fails or anything between the elements was written. */
bool hstu_run_backward(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g,
                       const struct hstu_variant *v, struct hstu_grad_floats *got);

/* The reference's gradients, doubles in the same order; to be freed by the other. */
struct hstu_grad_doubles {
    double *grad[N_GRADS];
    int64_t n[N_GRADS];
};
struct hstu_grad_doubles hstu_expected_gradients(const struct ptl_hstu_params *p,
                                                 const struct ptl_hstu_grads *g, bool low);
void hstu_grad_doubles_destroy(struct hstu_grad_doubles *x);

/* Fails the case unless every gradient is within the bound; NaN and infinities where the reference
 * has them, 0 where it has an exact 0. */
bool hstu_compare_gradients(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g,
                            const struct hstu_grad_floats *got,
                            const struct hstu_grad_doubles *expected, const char *what);

/* Fails the case unless the bits are alike. */
bool hstu_same_gradients(const struct hstu_grad_floats *a, const struct hstu_grad_floats *b,
                         const char *what);

/* All of it: every variant against the reference, halves also against five times the error of a
 * plain evaluation in halves, variants of a level alike bit for bit, inputs unchanged. */
void hstu_check_backward(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g);

#endif
