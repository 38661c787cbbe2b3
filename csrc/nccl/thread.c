/* The threads of this backend. No caller waits for each of them, and yet each is joined: by the
 * next thread that ends, and the last one by tri_nccl_threads_join. */
#include "csrc/nccl/thread.h"

#include <pthread.h>
#include <stdbool.h>

#include "csrc/base/thread.h"

/* Guards the three variables below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t running[TRI_NCCL_THREADS];
static pthread_t last; /* the newest thread that has ended, not joined yet; */
static bool ended;     /* if there is one */

static void count(enum tri_nccl_threads kind, int change)
{
    pthread_mutex_lock(&lock);
    running[kind] = (uint32_t)((int)running[kind] + change);
    pthread_mutex_unlock(&lock);
}

int tri_nccl_thread(enum tri_nccl_threads kind, void *(*function)(void *argument), void *argument)
{
    pthread_t thread;
    count(kind, 1);
    const int error = tri_thread_start(&thread, function, argument);
    if (error != 0)
        count(kind, -1);
    return error;
}

/* Join the newest thread that has ended, and put the caller in its place if it `ends`. */
static void join_last(bool ends, enum tri_nccl_threads kind)
{
    pthread_mutex_lock(&lock);
    const bool other = ended;
    const pthread_t before = last;
    ended = ends;
    if (ends) {
        last = pthread_self();
        running[kind]--;
    }
    pthread_mutex_unlock(&lock);
    if (other)
        (void)pthread_join(before, NULL);
}

void *tri_nccl_thread_end(enum tri_nccl_threads kind)
{
    join_last(true, kind);
    return NULL;
}

void tri_nccl_threads_join(void)
{
    join_last(false, TRI_NCCL_TASKS);
}

uint32_t tri_nccl_threads(enum tri_nccl_threads kind)
{
    pthread_mutex_lock(&lock);
    const uint32_t n = running[kind];
    pthread_mutex_unlock(&lock);
    return n;
}
