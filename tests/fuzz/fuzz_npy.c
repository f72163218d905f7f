/* Fuzz target: any bytes as a .npy file. Reading must refuse or give a tensor whose size is the
 * file's; every byte of it is touched, and it survives a round trip. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "npy.h"

static size_t tensor_bytes(const struct ptl_tensor *t) {
    size_t bytes = ptl_dtype_bytes(t->dtype);
    for (int i = 0; i < t->ndim; i++) bytes *= (size_t)t->shape[i];
    return bytes;
}

/* What is written must be read as the same. */
static void round_trip(const struct ptl_tensor *t, struct refusal *r) {
    char *content = NULL;
    size_t size = 0;
    struct ptl_tensor again;
    FILE *f = open_memstream(&content, &size);
    FUZZ_REQUIRE(f && npy_write_stream(f, t));
    fclose(f);
    f = fmemopen(content, size, "rb");
    FUZZ_REQUIRE(f && npy_read_stream(f, "again", &again, r));
    fclose(f);
    FUZZ_REQUIRE(again.dtype == t->dtype && again.ndim == t->ndim);
    FUZZ_REQUIRE(memcmp(again.shape, t->shape, sizeof t->shape) == 0);
    FUZZ_REQUIRE(memcmp(again.data, t->data, tensor_bytes(t)) == 0);
    free(again.data);
    free(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char sentence[512] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct ptl_tensor t;
    if (size == 0) return 0; /* fmemopen refuses it */
    FILE *f = fmemopen((void *)(uintptr_t)data, size, "rb");
    FUZZ_REQUIRE(f);
    if (npy_read_stream(f, "fuzz", &t, &refusal)) {
        FUZZ_REQUIRE(tensor_bytes(&t) <= size);
        round_trip(&t, &refusal);
        free(t.data);
    } else {
        FUZZ_REQUIRE(sentence[0]);
    }
    fclose(f);
    return 0;
}

/* ---- Seeds ----------------------------------------------------------------------------------- */

#define SEED(text)                                                                                 \
    { text, sizeof text - 1 }
#define VERSION_1(header, data) SEED("\x93NUMPY\x01\x00\x46\x00" header data)
#define VERSION_2(header, data) SEED("\x93NUMPY\x02\x00\x46\x00\x00\x00" header data)

/* Headers of 0x46 = 70 bytes. */
const struct fuzz_seed fuzz_seeds[] = {
    VERSION_1("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }            \n",
              "\x00\x00\x80\x3f\x00\x00\x00\x40"),
    VERSION_1("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 1), }          \n", "abc"),
    VERSION_1("{'descr': '<i8', 'fortran_order': False, 'shape': (), }              \n",
              "01234567"),
    VERSION_1("{'descr': '<u2', 'fortran_order': False, 'shape': (1, 0, 2, 9), }    \n", ""),
    VERSION_1("{'descr': '>f8', 'fortran_order': True, 'shape': (2, 3), }           \n", ""),
    VERSION_2("{\"shape\":(1,2,),\"fortran_order\":False,\"descr\":\"<i4\"}                 \n",
              "01234567"),
    SEED("'descr'"),
    SEED("'fortran_order'"),
    SEED("'shape'"),
    SEED("(18446744073709551615,)"),
};
const int n_fuzz_seeds = sizeof fuzz_seeds / sizeof fuzz_seeds[0];
