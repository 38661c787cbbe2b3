/* The thread that queries the events of marks, because a query may wait for a device. */
#include "csrc/nccl/prober.h"

#include <pthread.h>
#include <stdbool.h>

#include "csrc/nccl/device.h"
#include "csrc/nccl/thread.h"

/* Guards the variables below and `next` of marks; not held during a look. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* any of them */
static struct tri_nccl_marks *list;
static struct tri_nccl_marks *probed; /* the prober looks at it */
static bool running;
static bool asked;

/* Look at each once. The list may change during a look, but not what is looked at. The lock is
 * held. */
static void probe_all(void)
{
    probed = list;
    while (probed != NULL) {
        struct tri_nccl_device_guard guard;
        pthread_mutex_unlock(&lock);
        if (tri_nccl_push_device(&guard, probed->device) == TRIB_OK) {
            tri_nccl_marks_probe(probed);
            tri_nccl_pop_device(&guard);
        }
        pthread_mutex_lock(&lock);
        probed = probed->next;
        pthread_cond_broadcast(&changed);
    }
}

/* Ends with the last rank. */
static void *probe_when_asked(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (list != NULL) {
        if (!asked) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        asked = false;
        probe_all();
    }
    running = false;
    pthread_mutex_unlock(&lock);
    return tri_nccl_thread_end(TRI_NCCL_PROBER);
}

void tri_nccl_prober_ask(void)
{
    pthread_mutex_lock(&lock);
    asked = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

trib_status tri_nccl_prober_add(struct tri_nccl_marks *marks)
{
    pthread_mutex_lock(&lock);
    int error = 0;
    if (!running)
        error = tri_nccl_thread(TRI_NCCL_PROBER, probe_when_asked, NULL);
    if (error == 0) {
        running = true;
        marks->next = list;
        list = marks;
    }
    pthread_mutex_unlock(&lock);
    if (error == 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_SYSTEM, "no thread to follow queued calls: %s",
                    tri_error_text(error).text);
}

void tri_nccl_prober_remove(struct tri_nccl_marks *marks)
{
    pthread_mutex_lock(&lock);
    while (probed == marks)
        pthread_cond_wait(&changed, &lock);
    struct tri_nccl_marks **link = &list;
    while (*link != NULL && *link != marks)
        link = &(*link)->next;
    if (*link != NULL)
        *link = marks->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
