package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type fifoCase struct {
	Pairs int `json:"pairs"`
	Idle  int `json:"idle"`
}

type fifoFigures struct {
	MBPerS   float64 `json:"mb_per_s"`
	CPUSPerG float64 `json:"cpu_s_per_gb"`
	Messages uint64  `json:"messages"`
	Secs     float64 `json:"secs"`
}

const (
	messageLen   = 32 * 1024
	pipeLen      = 4 * 1024
	stampLen     = 8
	compareEvery = 16
)

// message is one side's messages, to be sent or as they are expected; as in fifo/talk.rs.
type message struct {
	due, received []byte
	number        uint64
}

func newMessage(pair, side int) *message {
	seed := pair*2 + side + 1
	due := make([]byte, messageLen)
	for index := range due {
		due[index] = byte(index * seed * 31 >> 3)
	}
	return &message{due: due, received: make([]byte, messageLen)}
}

func (m *message) stamp() {
	m.number++
	for page := 0; page < messageLen/pipeLen; page++ {
		binary.LittleEndian.PutUint64(m.due[page*pipeLen:], m.number<<8|uint64(page))
	}
}

func (m *message) check() error {
	m.stamp()
	size := stampLen
	if m.number%compareEvery == 0 {
		size = pipeLen
	}
	for page := 0; page < messageLen; page += pipeLen {
		if !bytes.Equal(m.due[page:page+size], m.received[page:page+size]) {
			return fmt.Errorf("page %d of message %d is not what was sent", page/pipeLen, m.number)
		}
	}
	return nil
}

type fifoRun struct {
	stop      atomic.Bool
	sent      atomic.Uint64
	received  []atomic.Uint64
	idleEnded atomic.Int64
	mutex     sync.Mutex
	problem   error
}

func (run *fifoRun) fail(err error) {
	run.mutex.Lock()
	defer run.mutex.Unlock()
	if err != nil && run.problem == nil {
		run.problem = err
	}
}

func (run *fifoRun) messages() uint64 {
	sum := uint64(0)
	for index := range run.received {
		sum += run.received[index].Load()
	}
	return sum
}

func (run *fifoRun) receive(from *os.File, m *message, own int) error {
	if _, err := io.ReadFull(from, m.received); err != nil {
		return err
	}
	run.received[own].Add(1)
	return m.check()
}

func (run *fifoRun) send(to *os.File, m *message) error {
	m.stamp()
	_, err := to.Write(m.due)
	run.sent.Add(1)
	return err
}

func (run *fifoRun) ask(pair int, from, to *os.File) error {
	defer to.Close()
	asks, answers := newMessage(pair, 0), newMessage(pair, 1)
	for !run.stop.Load() {
		if err := run.send(to, asks); err != nil {
			return err
		}
		if err := run.receive(from, answers, pair*2); err != nil {
			return err
		}
	}
	return nil
}

func (run *fifoRun) answer(pair int, from, to *os.File) error {
	defer to.Close()
	asks, answers := newMessage(pair, 0), newMessage(pair, 1)
	for {
		if err := run.receive(from, asks, pair*2+1); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := run.send(to, answers); err != nil {
			return err
		}
	}
}

// smallPipe is a pipe of 4 KB.
func smallPipe() (*os.File, *os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	const setPipeSize = 1031
	raw, err := to.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var problem error
	err = raw.Control(func(fd uintptr) {
		size, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, pipeLen)
		if errno != 0 || size != pipeLen {
			problem = fmt.Errorf("a pipe cannot be shrunk to 4 KB: %d, %v", size, errno)
		}
	})
	return from, to, errors.Join(err, problem)
}

func (run *fifoRun) waitIdle(from *os.File) {
	if count, err := from.Read(make([]byte, 1)); count != 0 || !errors.Is(err, io.EOF) {
		run.fail(fmt.Errorf("an idle pipe yielded %d bytes and %v", count, err))
	}
	run.idleEnded.Add(1)
}

// startIdle starts goroutines that wait, each on a descriptor of its own of one pipe, whose other end it returns.
func (run *fifoRun) startIdle(count int) (*os.File, error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, err
	}
	for made := 0; made < count; made++ {
		own, err := syscall.Dup(ends[0])
		if err != nil {
			return nil, err
		}
		go run.waitIdle(os.NewFile(uintptr(own), "idle"))
	}
	return os.NewFile(uintptr(ends[1]), "idle"), nil
}

func fifo(told trial) (any, error) {
	var of fifoCase
	if err := json.Unmarshal(told.Case, &of); err != nil {
		return nil, err
	}
	run := &fifoRun{received: make([]atomic.Uint64, of.Pairs*2)}
	idle, err := run.startIdle(of.Idle)
	if err != nil {
		return nil, err
	}
	time.Sleep(200 * time.Millisecond)
	var talking sync.WaitGroup
	for pair := 0; pair < of.Pairs; pair++ {
		thereFrom, thereTo, err := smallPipe()
		if err != nil {
			return nil, err
		}
		backFrom, backTo, err := smallPipe()
		if err != nil {
			return nil, err
		}
		talking.Add(2)
		go func() { defer talking.Done(); run.fail(run.ask(pair, backFrom, thereTo)) }()
		go func() { defer talking.Done(); run.fail(run.answer(pair, thereFrom, backTo)) }()
	}
	time.Sleep(time.Duration(min(told.Secs/4, 1) * 1e9))
	messages, cpu, begin := run.messages(), ownCPU(), time.Now()
	time.Sleep(time.Duration(told.Secs * 1e9))
	messages, cpu = run.messages()-messages, ownCPU()-cpu
	secs := time.Since(begin).Seconds()
	run.stop.Store(true)
	talking.Wait()
	if early := run.idleEnded.Load(); early != 0 {
		return nil, fmt.Errorf("%d idle goroutines ended before their pipe did", early)
	}
	idle.Close()
	for end := time.Now().Add(time.Minute); run.idleEnded.Load() < int64(of.Idle) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if ended := run.idleEnded.Load(); ended != int64(of.Idle) {
		return nil, fmt.Errorf("%d of %d idle goroutines saw the end of their pipe", ended, of.Idle)
	}
	if run.problem != nil {
		return nil, run.problem
	}
	if run.sent.Load() != run.messages() || messages == 0 {
		return nil, fmt.Errorf("%d messages sent, %d received, %d in the time measured", run.sent.Load(), run.messages(), messages)
	}
	mb := float64(messages) * messageLen / 1e6
	return fifoFigures{MBPerS: mb / secs, CPUSPerG: cpu.Seconds() / (mb / 1e3), Messages: messages, Secs: secs}, nil
}
