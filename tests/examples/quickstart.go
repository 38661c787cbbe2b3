// Two ranks of this process sum their arrays: the C API from Go, by cgo. Where the library is, say
// CGO_CFLAGS and CGO_LDFLAGS, or pkg-config.
package main

// #cgo LDFLAGS: -ltributary
// #include <stdlib.h>
// #include <tributary.h>
// static trib_options defaults(void) { return (trib_options)TRIB_OPTIONS_INIT; }
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// The detail is of this thread's last failure, so the goroutine stays on its thread (see main).
func check(status C.trib_status) error {
	if status != C.TRIB_OK {
		return errors.New(C.GoString(C.trib_last_detail()))
	}
	return nil
}

func sum() error {
	options := C.defaults()
	options.backend = C.CString("host") // the same on "nccl", with memory and streams of GPUs
	defer C.free(unsafe.Pointer(options.backend))
	var group *C.trib_group
	if err := check(C.trib_group_create(&group, nil, 2, &options)); err != nil {
		return err
	}
	data := [2][4]float32{{1, 2, 3, 4}, {10, 20, 30, 40}}
	var pin runtime.Pinner // C keeps the pointers until the wait: the data must not move
	defer pin.Unpin()
	defer C.trib_group_destroy(group) // before that
	var buffers [2]unsafe.Pointer     // in place: sent and received
	for rank := range data {
		pin.Pin(&data[rank])
		buffers[rank] = unsafe.Pointer(&data[rank])
	}
	err := check(C.trib_group_allreduce(group, &buffers[0], &buffers[0], 4, C.TRIB_F32, C.TRIB_SUM, nil))
	if err == nil { // it is queued
		err = check(C.trib_group_wait(group, nil, C.TRIB_NO_TIMEOUT))
	}
	if err != nil {
		return err
	}
	for rank, values := range data {
		fmt.Printf("rank %d: %g %g %g %g\n", rank, values[0], values[1], values[2], values[3])
	}
	return nil
}

func main() {
	runtime.LockOSThread()
	if err := sum(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
