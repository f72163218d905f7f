/* f32, f16 and bf16 as doubles and back. Not fast. */
#include "elements.h"

#include <math.h>
#include <string.h>

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 5 bits of exponent with bias 15, 10 of mantissa. */
static double from_f16(uint16_t h) {
    const uint64_t sign = (uint64_t)(h >> 15) << 63, mantissa = h & 0x3ff;
    const unsigned exponent = h >> 10 & 0x1f;
    if (exponent == 0) return (sign ? -1.0 : 1.0) * (double)mantissa * 0x1p-24;
    if (exponent == 31) return from_bits(sign | (uint64_t)0x7ff << 52 | mantissa << 42);
    return from_bits(sign | (uint64_t)(exponent - 15 + 1023) << 52 | mantissa << 42);
}

double ref_read(enum ptl_dtype type, const void *data, int64_t at) {
    if (type == PTL_F32) return (double)((const float *)data)[at];
    const uint16_t half = ((const uint16_t *)data)[at];
    if (type == PTL_F16) return from_f16(half);
    const uint32_t bits = (uint32_t)half << 16; /* bf16: the upper half of a float */
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

double ref_round(enum ptl_dtype type, double x) {
    if (type == PTL_F32) return (double)(float)x;
    if (!isfinite(x) || x == 0.0) return x;
    const int digits = type == PTL_F16 ? 11 : 8, least = type == PTL_F16 ? -14 : -126;
    const int exponent = ilogb(x) < least ? least : ilogb(x); /* below, the steps are even */
    const double step = ldexp(1.0, exponent - digits + 1);
    const double rounded = nearbyint(x / step) * step; /* ties to even */
    const double largest = type == PTL_F16 ? 65504.0 : 0x1.fep127;
    return fabs(rounded) > largest ? copysign(INFINITY, x) : rounded;
}

/* The bits of a half that holds x, which is one of the type's numbers. */
static uint16_t to_f16(double x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return sign | 0x7e00;
    if (isinf(x)) return sign | 0x7c00;
    if (fabs(x) < 0x1p-14) return (uint16_t)(sign | (int)(fabs(x) * 0x1p24));
    const int exponent = ilogb(x);
    const int mantissa = (int)((fabs(x) * ldexp(1.0, -exponent) - 1.0) * 1024.0);
    return (uint16_t)(sign | (exponent + 15) << 10 | mantissa);
}

void ref_write(enum ptl_dtype type, void *data, int64_t at, double x) {
    const double rounded = ref_round(type, x);
    if (type == PTL_F32) {
        ((float *)data)[at] = (float)rounded;
    } else if (type == PTL_F16) {
        ((uint16_t *)data)[at] = to_f16(rounded);
    } else {
        const float as_float = (float)rounded; /* exact */
        uint32_t bits;
        memcpy(&bits, &as_float, sizeof bits);
        ((uint16_t *)data)[at] = isnan(x) ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)(bits >> 16);
    }
}

int64_t ref_index(const struct ptl_tensor *t, int64_t i) {
    if (t->ndim == 0) i = 0;
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}
