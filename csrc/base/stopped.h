/* What the flag of an abort state says to kernels: 0 as long as the communicator is live, and never again. */
#ifndef TRI_BASE_STOPPED_H
#define TRI_BASE_STOPPED_H

enum {
    TRI_STOPPED = 1,
    /* Ranks of other processes may not have heard. Kernels on a device that find this refuse or give up their call
     * as ever, but end only when it is TRI_STOPPED, or after a time: for what is queued behind them is
     * made of tensors that the call has not written, and a rank that has not heard would apply it. */
    TRI_STOPPED_HERE = 3
};

/* They wait for TRI_OTHERS_MS at most: twice what the host waits for other processes (TRI_HELD_MS). Who waits for their
 * streams after an abort waits for longer. */
enum { TRI_OTHERS_MS = 200, TRI_RUN_OUT_MS = TRI_OTHERS_MS + 100 };

#endif
