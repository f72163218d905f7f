/* Lines with comma lists, s=512,1024 isa=avx2,avx512: one line for every combination, the last list
 * changing fastest. Values with a colon, files and window_size have commas of their own. */
#ifndef PTL_SWEEP_H
#define PTL_SWEEP_H

#include "words.h"

/* Lines that w stands for; -1: more than SWEEP_MAX. */
enum { SWEEP_MAX = 100000 };
int64_t sweep_count(const struct words *w);

/* Number `index` of them; words_free is due. */
bool sweep_line(const struct words *w, int64_t index, struct words *one, struct refusal *r);

#endif
