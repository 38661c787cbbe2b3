/* What the fuzz targets share: reading an input, judging a status, ranks on threads.
 *
 * A target defines LLVMFuzzerTestOneInput. With clang libFuzzer calls it with inputs that it makes
 * up; elsewhere replay.c calls it with the files of the corpus. */
#ifndef TRI_TESTS_FUZZ_H
#define TRI_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tributary.h"

/* All flags of trib_options; the newest is the last. */
enum { FUZZ_OPTION_FLAGS = 2 * TRIB_WINDOWS_UNABORTABLE - 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* End the process, which the fuzzer reports as a finding. */
#define FUZZ_FAIL(...)                                                                             \
    do {                                                                                           \
        (void)fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                      \
        (void)fprintf(stderr, __VA_ARGS__);                                                        \
        (void)fprintf(stderr, "\n");                                                               \
        abort();                                                                                   \
    } while (0)

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            FUZZ_FAIL("%s (last detail: %s)", #condition, trib_last_detail());                     \
    } while (0)

/* With TRIB_FUZZ_TRACE in the environment, a line for a reader of a finding. */
void fuzz_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ------------------------------------------------------------------------------ reading an input */

/* What is left of an input. Beyond its end everything is 0, and in every choice 0 is the ordinary
 * one, so a short input is a plain program. */
struct bytes {
    const uint8_t *at;
    size_t left;
};

uint8_t bytes_u8(struct bytes *in);
uint16_t bytes_u16(struct bytes *in);
uint32_t bytes_u32(struct bytes *in);
uint64_t bytes_u64(struct bytes *in);
/* 0 .. n-1 of one byte; n > 0. */
uint32_t bytes_below(struct bytes *in, uint32_t n);
/* True for one byte in n. */
bool bytes_rare(struct bytes *in, uint32_t n);
/* Copy up to `room` bytes. Returns how many were left. */
size_t bytes_copy(struct bytes *in, void *out, size_t room);

/* ---------------------------------------------------------------------------- judging a status */

/* Is it a number of TRIB_STATUS_MAP that the host backend may return? Has a failure a detail? */
trib_status fuzz_status(trib_status status, const char *call, const char *file, int line);
#define STATUS(call) fuzz_status((call), #call, __FILE__, __LINE__)
#define MUST(call) fuzz_must((call), #call, __FILE__, __LINE__)
void fuzz_must(trib_status status, const char *call, const char *file, int line);

/* The families of TRIB_STATUS_MAP. */
static inline bool fuzz_is_mistake(trib_status status)
{
    return status > TRIB_OK && status < TRIB_ERR_ABORTED;
}
static inline bool fuzz_is_state(trib_status status)
{
    return status >= TRIB_ERR_ABORTED && status < TRIB_ERR_OUT_OF_MEMORY;
}

/* The library's background work has ended. */
void fuzz_quiet(void);

/* ---------------------------------------------------------------------------- ranks on threads */

enum { FUZZ_RANKS = 4 };

/* Run body(rank, argument) for ranks 0 .. n-1, rank 0 on this thread and each other on one of its
 * own, and wait for all. The threads live as long as the process. */
void fuzz_ranks(int n, void (*body)(int rank, void *argument), void *argument);

/* One thread more, for something beside the ranks: begin it, and wait for its end. */
void fuzz_beside(void (*body)(int rank, void *argument), void *argument);
void fuzz_beside_end(void);

#endif
