/* The allocator and the start of threads, which the linker puts in front of the C library's
 * (--wrap): they can fail, and every block that is alive is counted. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/status.h"
#include "tests/injection/injection.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *data, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void __real_free(void *data);
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *data, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
void __wrap_free(void *data);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);

static _Atomic long live;

long injection_live_blocks(void)
{
    return atomic_load(&live);
}

/* Each function by itself, so that a report names it. */
static const struct injection_place at_malloc = {"malloc", TRIB_ERR_OUT_OF_MEMORY, false},
                                    at_calloc = {"calloc", TRIB_ERR_OUT_OF_MEMORY, false},
                                    at_realloc = {"realloc", TRIB_ERR_OUT_OF_MEMORY, false},
                                    at_aligned = {"aligned_alloc", TRIB_ERR_OUT_OF_MEMORY, false},
                                    at_memalign = {"posix_memalign", TRIB_ERR_OUT_OF_MEMORY, false},
                                    at_thread = {"pthread_create", TRIB_ERR_SYSTEM, false};

static bool fails(const struct injection_place *place)
{
    return injection_fails(INJECT_NO_MEMORY, place);
}

static void *counted(void *data)
{
    if (data != NULL)
        atomic_fetch_add(&live, 1);
    return data;
}

void *__wrap_malloc(size_t bytes)
{
    return fails(&at_malloc) ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails(&at_calloc) ? NULL : counted(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *data, size_t bytes)
{
    if (fails(&at_realloc))
        return NULL;
    void *moved = __real_realloc(data, bytes);
    return data == NULL ? counted(moved) : moved;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(&at_aligned) ? NULL : counted(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (fails(&at_memalign))
        return ENOMEM;
    const int error = __real_posix_memalign(out, alignment, bytes);
    if (error == 0)
        atomic_fetch_add(&live, 1);
    return error;
}

void __wrap_free(void *data)
{
    if (data != NULL)
        atomic_fetch_sub(&live, 1);
    __real_free(data);
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument)
{
    return injection_fails(INJECT_NO_THREAD, &at_thread)
               ? EAGAIN
               : __real_pthread_create(out, attributes, function, argument);
}
