package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// serveSpin is the Go peer of `bench overload`: net/http with handlers that burn processor time, and on demand with a limit
// of how many are at work, past which it refuses.
func serveSpin(args []string) error {
	flags := flag.NewFlagSet("spin", flag.ContinueOnError)
	port := flags.Int("port", 0, "port on the loopback address")
	limit := flags.Int("limit", 0, "the most requests at work; 0 for any number")
	if err := flags.Parse(args); err != nil {
		return err
	}
	handler := http.Handler(http.HandlerFunc(spin))
	if *limit > 0 {
		handler = shed(handler, *limit)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	// Clients that go away are no matter of the server's.
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	return server.Serve(listener)
}

// shed refuses what comes while as many as the limit are at work.
func shed(handler http.Handler, limit int) http.Handler {
	places := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			handler.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		}
	})
}

func spin(w http.ResponseWriter, r *http.Request) {
	us, err := strconv.ParseUint(r.URL.Query().Get("us"), 10, 32)
	if err != nil || us > 10_000_000 {
		http.Error(w, "write /?us=5000: microseconds, 10000000 at most", http.StatusBadRequest)
		return
	}
	burn(time.Duration(us) * time.Microsecond)
	fmt.Fprintf(w, "%d\n", us)
}

// burn keeps the processor busy for so much time of its thread: waiting for the processor does not count.
func burn(cost time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin, sum := threadCPU(), uint64(1)
	for threadCPU()-begin < cost {
		for range 2_000 {
			sum = sum*6364136223846793005 + 1442695040888963407
		}
	}
	runtime.KeepAlive(sum)
}

// threadCPU is the processor time of the calling thread so far. A raw call: Go's scheduler need not know of it.
func threadCPU() time.Duration {
	const clockThreadCPUTime = 3
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}
