package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// serveWeb is the Go peer of `bench web`: net/http with files in memory.
func serveWeb(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	port := flags.Int("port", 0, "port on the loopback address")
	cacheMB := flags.Int("cache-mb", 256, "memory for files")
	cert := flags.String("cert", "", "certificate chain")
	key := flags.String("key", "", "its key")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("usage: serve [flags] DIR")
	}
	files := &fileCache{root: flags.Arg(0), bytesMax: *cacheMB << 20, files: map[string]*cachedFile{}}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	// Clients that go away in the middle of a handshake are no matter of the server's.
	server := &http.Server{Handler: files, ErrorLog: log.New(io.Discard, "", 0)}
	if *cert == "" {
		return server.Serve(listener)
	}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	return server.ServeTLS(listener, *cert, *key)
}

// fileCache keeps files as the peer in Rust does: who misses one reads it; those that were used lately stay longer.
type fileCache struct {
	root     string
	bytesMax int
	lock     sync.RWMutex
	files    map[string]*cachedFile
	order    []string
	bytes    int
}

type cachedFile struct {
	body []byte
	used atomic.Bool
}

func (cache *fileCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := cache.find(r.URL.Path)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header["Content-Type"] = []string{"text/html"}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.Write(body)
}

func (cache *fileCache) find(path string) ([]byte, error) {
	cache.lock.RLock()
	file := cache.files[path]
	cache.lock.RUnlock()
	if file != nil {
		if !file.used.Load() {
			file.used.Store(true)
		}
		return file.body, nil
	}
	name := strings.TrimPrefix(path, "/")
	if strings.Contains(name, "/") {
		return nil, os.ErrNotExist
	}
	body, err := os.ReadFile(filepath.Join(cache.root, name))
	if err == nil && len(body) <= cache.bytesMax {
		cache.keep(path, body)
	}
	return body, err
}

func (cache *fileCache) keep(path string, body []byte) {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	if cache.files[path] != nil {
		return
	}
	for cache.bytes+len(body) > cache.bytesMax && len(cache.order) > 0 {
		oldest := cache.order[0]
		cache.order = cache.order[1:]
		if file := cache.files[oldest]; file.used.Swap(false) {
			cache.order = append(cache.order, oldest)
		} else {
			cache.bytes -= len(file.body)
			delete(cache.files, oldest)
		}
	}
	cache.bytes += len(body)
	cache.order = append(cache.order, path)
	cache.files[path] = &cachedFile{body: body}
}
