/* File descriptors, also for rooms that see nothing of the system. */
#ifndef TRI_BASE_DESCRIPTOR_H
#define TRI_BASE_DESCRIPTOR_H

#include <unistd.h>

/* Close *fd, which becomes -1, unless it is that already. */
static inline void tri_descriptor_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

#endif
