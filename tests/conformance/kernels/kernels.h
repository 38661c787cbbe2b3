/* What every kernel table must do. kernels_cpu_test.c and kernels_cuda_test.c are the instances.
 *
 * Each case lays its tensors, buckets and words out in one stretch of memory full of random bytes,
 * keeps an image of it on the host, does to the image what the kernel should do (with the naive
 * arithmetic of kernels_reference.c), and compares all of it: every byte that should not have
 * changed is a canary. */
#ifndef TRI_TESTS_CONFORMANCE_KERNELS_H
#define TRI_TESTS_CONFORMANCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "tests/check.h"

/* A table, and the memory that it works on. */
struct kernels_place {
    const struct tri_kernels *kernels;
    trib_stream stream;
    void *(*alloc)(size_t bytes);        /* aligned to 256; NULL if there is none left */
    void *(*alloc_pinned)(size_t bytes); /* for the abort flag and the counter */
    void (*free)(void *data);
    void (*free_pinned)(void *data);
    /* Both wait for the streams, before and after. */
    void (*upload)(void *dst, const void *src, size_t bytes);
    void (*download)(void *dst, const void *src, size_t bytes);
    /* NULL, or the same as upload, but only the stream waits, and a kernel on it that has not waited for the one
     * before it finds what was there before. Of alloc's memory, aligned to 16. */
    void (*upload_late)(void *dst, const void *src, size_t bytes);

    /* For sparse kernels; each may be NULL. */
    const struct tri_sparse_kernels *twin; /* works on the host's memory, must give the same bits */
    trib_stream other;                     /* another stream of the same device */
    /* What `queue` queues on the stream, to be launched later, any number of times. */
    void *(*capture)(void (*queue)(void *argument), void *argument);
    void (*replay)(void *graph);
    void (*discard)(void *graph);
};

/* Everything; less of it if the environment has TRIB_TEST_QUICK. */
/* Read the arguments of a program of the suite, of which "--slice I/N" is the first. False, with a
 * message, if that is wrong. */
bool kernels_slice(int n, char **arguments);

void kernels_suite(const struct kernels_place *place);
/* A tensor of more than 2^31 elements: about 4.4 GB of the place's memory. */
void kernels_large(const struct kernels_place *place);

/* ------------------------------------------------------------------------------------- memory */

/* Late, where the place has that. */
void kernels_upload(const struct kernels_place *place, void *dst, const void *src, size_t bytes);

enum { ARENA_MARKS = 4096 };

struct arena {
    const struct kernels_place *place;
    unsigned char *device, *image, *found;
    size_t capacity, used;
    /* Where floats lie: any NaN is as good as any other there. */
    struct {
        size_t at, count;
        trib_dtype dtype;
    } marks[ARENA_MARKS];
    size_t n_marks;
    /* Bytes that may be anything. */
    struct {
        size_t at, bytes;
    } open[ARENA_MARKS];
    size_t n_open;
    /* What was placed, for messages; the first ARENA_MARKS of it. */
    struct {
        size_t at, bytes;
        const char *name;
    } blocks[ARENA_MARKS];
    size_t n_blocks;
};

bool arena_open(struct arena *arena, const struct kernels_place *place, size_t capacity);
void arena_close(struct arena *arena);
/* Empty again. */
void arena_reset(struct arena *arena);
/* Room for `bytes` bytes, `misalign` bytes after a multiple of 256, with at least 64 bytes of
 * canaries on each side; an offset into device and image. */
size_t arena_place(struct arena *arena, size_t bytes, size_t misalign);
/* Call what was placed at `at` by a name. */
void arena_name(struct arena *arena, size_t at, const char *name);
/* From `at` on lie `count` elements, and NaNs among them are all the same. */
void arena_mark(struct arena *arena, size_t at, size_t count, trib_dtype dtype);
/* The `bytes` bytes from `at` on may be anything. */
void arena_forget(struct arena *arena, size_t at, size_t bytes);
/* Random bytes into the image. */
void arena_poison(struct arena *arena, size_t at, size_t bytes);
/* The image to the device. */
void arena_upload(struct arena *arena);
/* The device's bytes are those of the image. */
bool arena_check(struct arena *arena, const char *what);
/* The same in two steps; `found` may be changed. */
void arena_download(struct arena *arena);
bool arena_compare(struct arena *arena, unsigned char *found, const char *what);

/* --------------------------------------------------------------------------------- arithmetic */

uint64_t kernels_random(void);
/* A float of dtype f16, bf16, f32 or f64, at any address. */
double kernels_get(const void *element, trib_dtype dtype);
/* The same, rounded to the nearest, ties to even. */
void kernels_put(void *element, trib_dtype dtype, double value);

enum kernels_numbers {
    KERNELS_TAME,     /* between -2 and 2, all digits in use */
    KERNELS_WILD,     /* any bits but NaNs: infinities and denormals too */
    KERNELS_WILD_NANS /* any bits */
};
/* Random elements; integers are always any bits. */
void kernels_fill(void *data, trib_dtype dtype, size_t count, enum kernels_numbers numbers);
/* The element `dst` = reduction of the elements src[0..nsrc). */
void kernels_fold(void *dst, const void *const *src, size_t nsrc, trib_dtype dtype, trib_op op);

/* -------------------------------------------------------------------------------------- lists */

/* How a list is moved: by a table, where the table of kernels can, or passed with each call. */
enum list_form { LIST_ANY, LIST_KEPT, LIST_PASSED }; /* any: by chance */

/* The parameters of list_make. */
struct list_params {
    const size_t *counts; /* of elements; each slice has one of them, by chance or in turn */
    size_t n_counts;
    const trib_dtype *dtypes; /* of the slices, in turn; NULL: the bucket's */
    size_t n_dtypes;
    bool aligned; /* to 256, or by chance to its element */
    bool padded;  /* the bucket ends with padding if the last slice leaves any */
    size_t extra; /* elements of the bucket after that */
    bool in_turn;
    enum list_form form;
};

struct list {
    struct tri_slice *slices;
    size_t *at; /* of slices[i].data, in the arena */
    size_t n, end;
    struct tri_bucket bucket;
    size_t bucket_at;
    bool kept; /* it is moved by a table, which is at */
    size_t table_at;
};

/* Place a list of `n` slices and its bucket of `dtype` in the arena. */
void list_make(struct list *list, struct arena *arena, trib_dtype dtype, size_t n,
               const struct list_params *params);
void list_free(struct list *list);
/* Pack it, and unpack it by the decision at `decision`, which comes late where the place has that. */
void list_pack(struct arena *arena, const struct list *list, const struct tri_weight *weight);
void list_unpack(struct arena *arena, const struct list *list, int weighted, size_t decision);
/* Write the table of a list that is kept; how many slices it has. */
size_t list_keep(const struct arena *arena, const struct list *list);
/* What pack makes of the image; and with a weight, of a list of these parameters: a bucket of f32 takes f16, bf16 and
 * f32, one of f64 only f64. */
void list_pack_image(const struct arena *arena, const struct list *list);
void list_weigh_image(struct arena *arena, const struct list *list, float weight);
struct list_params list_weighted_params(trib_dtype dtype, const size_t *counts, size_t n_counts,
                                        bool aligned, bool padded);
/* A decision in the arena. */
size_t decision_place(struct arena *arena, uint32_t value);

/* ------------------------------------------------------------------------------------- parts */

void kernels_commit(struct arena *arena);
void kernels_plain(struct arena *arena, bool quick);
void kernels_edges(struct arena *arena, bool quick);
void kernels_decision(struct arena *arena, bool quick);
void kernels_weighted(struct arena *arena, bool quick);
void kernels_reduce(struct arena *arena, bool quick);
void kernels_scale(struct arena *arena, bool quick);
void kernels_push(struct arena *arena, bool quick);
void kernels_pull(struct arena *arena, bool quick); /* of a table that has it */
void kernels_reduce_scaled(struct arena *arena, bool quick);

#endif
