/* From the arguments of an HSTU call to a problem that nothing has to refuse any more. */
#ifndef PTL_HSTU_CHECK_H
#define PTL_HSTU_CHECK_H

#include "../ops/hstu.h"

/* PTL_OK and a filled problem, or a refusal that names the argument. */
enum ptl_status ptl_hstu_check_forward(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p);
enum ptl_status ptl_hstu_check_backward(const struct ptl_hstu_params *a,
                                        const struct ptl_hstu_grads *d, struct ptl_hstu_problem *p,
                                        struct ptl_hstu_gradients *g);

#endif
