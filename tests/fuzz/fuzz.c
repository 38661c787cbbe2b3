/* Reading an input, judging a status, ranks on threads. */
#define _POSIX_C_SOURCE 200809L
#include "tests/fuzz/fuzz.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>

void fuzz_trace(const char *format, ...)
{
    va_list arguments;
    if (getenv("TRIB_FUZZ_TRACE") == NULL)
        return;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------ reading an input */

uint8_t bytes_u8(struct bytes *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

uint16_t bytes_u16(struct bytes *in)
{
    const uint16_t low = bytes_u8(in);
    return (uint16_t)(low | (uint16_t)(bytes_u8(in) << 8));
}

uint32_t bytes_u32(struct bytes *in)
{
    const uint32_t low = bytes_u16(in);
    return low | (uint32_t)bytes_u16(in) << 16;
}

uint64_t bytes_u64(struct bytes *in)
{
    const uint64_t low = bytes_u32(in);
    return low | (uint64_t)bytes_u32(in) << 32;
}

uint32_t bytes_below(struct bytes *in, uint32_t n)
{
    return bytes_u8(in) % n;
}

bool bytes_rare(struct bytes *in, uint32_t n)
{
    return bytes_u8(in) % n == n - 1;
}

size_t bytes_copy(struct bytes *in, void *out, size_t room)
{
    const size_t n = in->left < room ? in->left : room;
    if (n != 0)
        memcpy(out, in->at, n);
    in->at += n;
    in->left -= n;
    return n;
}

/* ---------------------------------------------------------------------------- judging a status */

trib_status fuzz_status(trib_status status, const char *call, const char *file, int line)
{
    bool known = false;
#define KNOWN(name, number, sentence) known = known || status == (number);
    TRIB_STATUS_MAP(KNOWN)
#undef KNOWN
    const bool strange = status == TRIB_ERR_CUDA || status == TRIB_ERR_NCCL ||
                         status == TRIB_ERR_SYSTEM || status == TRIB_ERR_INTERNAL;
    if (known && !strange && (status == TRIB_OK || trib_last_detail()[0] != '\0'))
        return status;
    FUZZ_FAIL("%s:%d: %s is %d (%s), detail \"%s\"", file, line, call, status,
              trib_status_name(status), trib_last_detail());
}

void fuzz_must(trib_status status, const char *call, const char *file, int line)
{
    if (fuzz_status(status, call, file, line) != TRIB_OK)
        FUZZ_FAIL("%s:%d: %s is %s: %s", file, line, call, trib_status_name(status),
                  trib_last_detail());
}

void fuzz_quiet(void)
{
    MUST(trib_quiesce(5000));
}

/* ---------------------------------------------------------------------------- ranks on threads */

struct worker {
    int rank;
    bool started, busy;
    void (*body)(int rank, void *argument);
    void *argument;
};

/* Guards all workers: each is given work, and says that it is done, under this lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct worker workers[FUZZ_RANKS + 1];

static void *serve(void *context)
{
    struct worker *worker = context;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!worker->busy)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        worker->body(worker->rank, worker->argument);
        pthread_mutex_lock(&lock);
        worker->busy = false;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static void begin(int rank, void (*body)(int rank, void *argument), void *argument)
{
    struct worker *worker = &workers[rank];
    pthread_mutex_lock(&lock);
    worker->rank = rank;
    worker->body = body;
    worker->argument = argument;
    worker->busy = true;
    if (!worker->started) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, worker) != 0)
            abort();
        (void)pthread_detach(thread);
        worker->started = true;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void end(int rank)
{
    pthread_mutex_lock(&lock);
    while (workers[rank].busy)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void fuzz_ranks(int n, void (*body)(int rank, void *argument), void *argument)
{
    for (int rank = 1; rank < n; rank++)
        begin(rank, body, argument);
    body(0, argument);
    for (int rank = 1; rank < n; rank++)
        end(rank);
}

void fuzz_beside(void (*body)(int rank, void *argument), void *argument)
{
    begin(FUZZ_RANKS, body, argument);
}

void fuzz_beside_end(void)
{
    end(FUZZ_RANKS);
}

/* -------------------------------------------------------------------------------- the sanitizer */

/* An allocation that is too large fails, as it does without the sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:detect_stack_use_after_return=1";
}
