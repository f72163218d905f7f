/* ptl_hstu_time_thresholds: the bucket functions of public models, inverted once by bisection. */
#include <inttypes.h>
#include <math.h>

#include <pantile/hstu.h>

#include "../core/message.h"

static float bucket_of(enum ptl_hstu_time_fn fn, float unit, float divisor, int64_t x) {
    const float f = (float)x / unit;
    return (fn == PTL_HSTU_TIME_LOG ? logf(f < 1.0f ? 1.0f : f) : sqrtf(f)) / divisor;
}

enum ptl_status ptl_hstu_time_thresholds(enum ptl_hstu_time_fn fn, float unit, float divisor,
                                         int64_t n, int64_t *thresholds) {
    if (fn != PTL_HSTU_TIME_LOG && fn != PTL_HSTU_TIME_SQRT)
        return ptl_fail(PTL_ERR_PARAM, "fn: %d, expected 0 or 1", (int)fn);
    if (!isfinite(unit) || unit <= 0.0f)
        return ptl_fail(PTL_ERR_PARAM, "unit: %g, expected a positive finite number", unit);
    if (!isfinite(divisor) || divisor <= 0.0f)
        return ptl_fail(PTL_ERR_PARAM, "divisor: %g, expected a positive finite number", divisor);
    if (n < 0) return ptl_fail(PTL_ERR_PARAM, "n: %" PRId64 ", expected 0 or more", n);
    if (n > 0 && !thresholds)
        return ptl_fail(PTL_ERR_NULL, "thresholds: NULL, expected room for %" PRId64 " numbers", n);
    int64_t low = 0;
    for (int64_t k = 1; k <= n; k++) {
        int64_t high = INT64_MAX;
        while (low < high) { /* the smallest x from low on whose bucket is at least k */
            const int64_t mid = low + (high - low) / 2;
            if (bucket_of(fn, unit, divisor, mid) >= (float)k) high = mid;
            else low = mid + 1;
        }
        thresholds[k - 1] = low;
    }
    return PTL_OK;
}
