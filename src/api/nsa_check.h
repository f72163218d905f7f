/* From the arguments of a sparse or full attention call to a problem that nothing has to refuse any
 * more. */
#ifndef PTL_NSA_CHECK_H
#define PTL_NSA_CHECK_H

#include <pantile/attention.h>

#include "../ops/nsa.h"

enum ptl_status ptl_nsa_check_compressed(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p);
enum ptl_status ptl_nsa_check_select(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p);
enum ptl_status ptl_nsa_check_attend(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p);
enum ptl_status ptl_nsa_check_combine(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p);

/* compresses: kc and vc are absent, p->cmp is to be filled in. */
enum ptl_status ptl_nsa_check_forward(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p,
                                      bool *compresses);

enum ptl_status ptl_attention_check(const struct ptl_attention_params *a,
                                    struct ptl_nsa_problem *p);

/* One compression, of x or of keys or values; append has up to two. */
enum ptl_status ptl_nsa_check_compress(const struct ptl_nsa_compress_params *a,
                                       struct ptl_nsa_compression *c);
enum ptl_status ptl_nsa_check_append(const struct ptl_nsa_append_params *a,
                                     struct ptl_nsa_compression *keys,
                                     struct ptl_nsa_compression *values);

/* What both files of checks need. */
enum ptl_status ptl_nsa_check_blocks(int64_t block, int64_t stride);
enum ptl_status ptl_nsa_check_float(const char *name, const struct ptl_tensor *t,
                                    enum ptl_dtype like, const char *like_name);
enum ptl_status ptl_nsa_check_index(const char *name, const struct ptl_tensor *t, int n_axes);
enum ptl_status ptl_nsa_check_table(const char *name, const struct ptl_tensor *t, int64_t n_seqs);
enum ptl_status ptl_nsa_check_table_row(const char *name, const struct ptl_tensor *t, int64_t b,
                                        int64_t n_rows, int64_t page_size, int64_t n_pages);

/* Arrays of one half of a step that the other would overwrite. */
enum ptl_status ptl_nsa_check_step(const struct ptl_nsa_append_params *a,
                                   const struct ptl_nsa_params *p);

#endif
