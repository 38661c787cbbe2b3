/* Windows of the fake's NCCL: memory of all ranks of a communicator that it knows. */
#include <nccl.h>
#include <stdint.h>

#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_windows.h"

enum { WINDOWS = 64, ALIGNMENT = 4096, NOBODY = -1, SINCE = 22700, ENDED_SINCE = 22907 };

static struct ncclWindow_vidmem {
    ncclComm_t comm; /* NULL: free */
    const char *start;
    size_t bytes;
} windows[WINDOWS];
static int failing = NOBODY;
static long calls;

int fake_windows(void)
{
    int n = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < WINDOWS; i++)
        n += windows[i].comm != NULL;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

void fake_fail_windows(int rank)
{
    pthread_mutex_lock(&fake_lock);
    failing = rank;
    pthread_mutex_unlock(&fake_lock);
}

long fake_window_calls(void)
{
    pthread_mutex_lock(&fake_lock);
    const long n = calls;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static bool is_in_window(ncclComm_t comm, const char *data, size_t bytes)
{
    for (int i = 0; i < WINDOWS; i++)
        if (windows[i].comm == comm && data >= windows[i].start &&
            data + bytes <= windows[i].start + windows[i].bytes)
            return true;
    return false;
}

void fake_windows_call(ncclComm_t comm, const void *send, const void *recv, size_t bytes)
{
    calls += is_in_window(comm, send, bytes) && is_in_window(comm, recv, bytes);
}

/* As NCCL does since 2.29.7; before, whoever does not end a window loses its memory. */
void fake_windows_end(ncclComm_t comm, int version)
{
    for (int i = 0; i < WINDOWS && version >= ENDED_SINCE; i++)
        if (windows[i].comm == comm)
            windows[i].comm = NULL;
}

static ncclWindow_t new_window(ncclComm_t comm, const void *start, size_t bytes)
{
    struct ncclWindow_vidmem *window = windows;
    while (window < windows + WINDOWS && window->comm != NULL)
        window++;
    if (window == windows + WINDOWS)
        fake_die("more windows are made than the fake has room for");
    *window = (struct ncclWindow_vidmem){comm, start, bytes};
    return window;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *data, size_t bytes, ncclWindow_t *out,
                                    int flags)
{
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < SINCE)
        fake_die("a window is made with an NCCL that has none");
    pthread_mutex_lock(&fake_lock);
    if (flags != NCCL_WIN_COLL_SYMMETRIC || (uintptr_t)data % ALIGNMENT != 0 ||
        !fake_exportable(data, bytes))
        fake_die("a window of memory that NCCL does not take");
    const int rank = fake_comm_meet(comm, bytes);
    const bool good = rank >= 0 && rank != failing;
    *out = good ? new_window(comm, data, bytes) : NULL;
    pthread_mutex_unlock(&fake_lock);
    return good ? ncclSuccess : ncclInternalError;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    pthread_mutex_lock(&fake_lock);
    if (window < windows || window >= windows + WINDOWS || window->comm != comm)
        fake_die("a window ends that there is not");
    const bool good = fake_comm_rank(comm) != failing;
    window->comm = NULL;
    pthread_mutex_unlock(&fake_lock);
    return good ? ncclSuccess : ncclInternalError;
}
