/* pantile: fused long-sequence attention for CPUs. Includes every public header. */
#ifndef PANTILE_PANTILE_H
#define PANTILE_PANTILE_H

#include <pantile/attention.h>
#include <pantile/base.h>
#include <pantile/hstu.h>
#include <pantile/jagged.h>
#include <pantile/nsa.h>

#endif
