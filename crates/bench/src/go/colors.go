package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The colors in Go: the workloads of `bench colors`, on goroutines. The state, the work and the check are those of
// colors/ledger.rs, and so are the names.
//
// channel: a goroutine and a buffered channel per color. A channel has room for all that can be in flight to it, so that a
// color that posts to itself never waits.
//
// mailbox: a slice behind a mutex per color, and a goroutine only while something waits in it, which takes all of it at once.
// The two slices of a color take turns, so nothing is allocated.
//
// mutex: a goroutine per token (w5) or poster (w3-in-line) and a mutex per account, taken in order. Nothing is queued.

// lane is the state of one color, far from its neighbors. The counts are plain: one goroutine at a time writes them, and the
// one that measures reads them meanwhile, which 64-bit machines do in one piece.
type lane struct {
	count, breaks, due, balance, last uint64
	mutex                             sync.Mutex
	_                                 [512 - 6*8]byte
}

func (l *lane) step(expected, rounds uint64) {
	count := l.count
	if count != expected {
		l.breaks++
	}
	l.spin(rounds)
	l.count = count + 1
}

// spin is the work: each multiplication waits for the one before.
func (l *lane) spin(rounds uint64) {
	if rounds > 0 {
		value := l.last
		for range rounds {
			value = value*6364136223846793005 + 1
		}
		l.last = value
	}
}

func (l *lane) owe(callbacks uint64) {
	atomic.AddUint64(&l.due, callbacks)
}

// posted is a callback of w2 and w3: its number, and whether its poster may go on.
type posted struct {
	poster uint32
	last   bool
	number uint64
}

// colorsRun is one run.
type colorsRun struct {
	workload                 string
	colors                   int
	inFlight, rounds, tokens uint64
	lanes, posters           []lane
	counter                  lane
	transfers                []uint64
	_                        [128]byte
	stop                     atomic.Bool
	_                        [128]byte
	finished                 atomic.Uint64
	_                        [128]byte
}

// colorsOutcome is what it prints.
type colorsOutcome struct {
	Secs          float64 `json:"secs"`
	RatePerS      float64 `json:"rate_per_s"`
	CPUNsPerOp    float64 `json:"cpu_ns_per_op"`
	SwitchesPerOp float64 `json:"switches_per_op"`
	WakesPerOp    float64 `json:"wakes_per_op"`
	OrderBreaks   uint64  `json:"order_breaks"`
	Problem       string  `json:"problem,omitempty"`
}

const (
	burst          = 64
	w2Bursts       = 16
	w3Bursts       = 2
	openingBalance = 1_000
	// begin is the message that has a color post the first ones to itself.
	begin = ^uint64(0)
)

// runColors is told what the process of a trial of Dapple is told too.
func runColors(args []string) error {
	flags := flag.NewFlagSet("colors", flag.ContinueOnError)
	run := &colorsRun{}
	form := flags.String("form", "channel", "channel, mailbox or mutex")
	flags.StringVar(&run.workload, "workload", "w1", "what is run")
	flags.IntVar(&run.colors, "colors", 16, "how many colors")
	flags.Uint64Var(&run.inFlight, "in-flight", 1, "callbacks in flight")
	flags.Uint64Var(&run.rounds, "spin-rounds", 0, "work in each callback")
	secs := flags.Float64("secs", 1, "seconds measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	run.lanes = make([]lane, run.colors)
	for index := range run.lanes {
		run.lanes[index].balance = openingBalance
	}
	run.posters = make([]lane, run.colors)
	run.transfers = make([]uint64, run.inFlight)
	switch *form {
	case "channel":
		run.start(openChannel[uint64], openChannel[posted], openChannel[struct{}])
	case "mailbox":
		run.start(openMailbox[uint64], openMailbox[posted], openMailbox[struct{}])
	case "mutex":
		run.startInLine()
	default:
		return fmt.Errorf("no form is called %s", *form)
	}
	if run.tokens == 0 {
		return fmt.Errorf("%s has no form of %s", *form, run.workload)
	}
	return json.NewEncoder(os.Stdout).Encode(run.measure(*secs))
}

// opener starts a color with room for so many messages, each of which is given to a function, and yields how to post to it.
type opener[M any] func(room int, each func(M)) func(M)

func openChannel[M any](room int, each func(M)) func(M) {
	inbox := make(chan M, room)
	go func() {
		for message := range inbox {
			each(message)
		}
	}()
	return func(message M) { inbox <- message }
}

type mailbox[M any] struct {
	mutex          sync.Mutex
	running        bool
	waiting, spare []M
	each           func(M)
	start          func()
}

func openMailbox[M any](_ int, each func(M)) func(M) {
	box := &mailbox[M]{each: each}
	box.start = box.run
	return box.post
}

func (box *mailbox[M]) post(message M) {
	box.mutex.Lock()
	box.waiting = append(box.waiting, message)
	idle := !box.running
	box.running = true
	box.mutex.Unlock()
	if idle {
		go box.start()
	}
}

func (box *mailbox[M]) run() {
	for {
		box.mutex.Lock()
		if len(box.waiting) == 0 {
			box.running = false
			box.mutex.Unlock()
			return
		}
		taken := box.waiting
		box.waiting = box.spare[:0]
		box.mutex.Unlock()
		for index := range taken {
			box.each(taken[index])
		}
		box.spare = taken
	}
}

func (run *colorsRun) start(steps opener[uint64], posts opener[posted], goOns opener[struct{}]) {
	switch run.workload {
	case "w1":
		run.startW1(steps)
	case "w2":
		run.startW2(posts, goOns)
	case "w3":
		run.startW3(posts, goOns)
	case "w4":
		run.startW4(steps)
	}
}

func (run *colorsRun) startW1(open opener[uint64]) {
	for index := range run.lanes {
		own := &run.lanes[index]
		var post func(uint64)
		post = open(int(run.inFlight), func(expected uint64) {
			if expected == begin {
				run.postAll(post)
				return
			}
			if run.stop.Load() {
				own.owe(expected / run.inFlight)
				run.finished.Add(1)
				return
			}
			own.step(expected, run.rounds)
			post(expected + run.inFlight)
		})
		post(begin)
	}
	run.tokens = uint64(run.colors) * run.inFlight
}

func (run *colorsRun) startW2(posts opener[posted], goOns opener[struct{}]) {
	targets := make([]func(posted), run.colors)
	poster := &run.posters[0]
	goOn := goOns(w2Bursts, func(struct{}) {
		if run.stop.Load() {
			run.finished.Add(1)
			return
		}
		start, colors := poster.count, uint64(run.colors)
		index, round := start%colors, start/colors
		for left := burst - 1; left >= 0; left-- {
			targets[index](posted{number: round, last: left == 0})
			if index++; index == colors {
				index, round = 0, round+1
			}
		}
		poster.count = start + burst
	})
	for index := range run.lanes {
		own := &run.lanes[index]
		targets[index] = posts(2+2*w2Bursts*burst/run.colors, func(message posted) {
			own.step(message.number, run.rounds)
			if message.last {
				goOn(struct{}{})
			}
		})
	}
	for range w2Bursts {
		goOn(struct{}{})
	}
	run.tokens = w2Bursts
}

func (run *colorsRun) startW3(posts opener[posted], goOns opener[struct{}]) {
	goOn := make([]func(struct{}), run.colors)
	count := posts(run.colors*w3Bursts*burst, func(message posted) {
		run.stepW3(message.poster, message.number)
		if message.last {
			goOn[message.poster](struct{}{})
		}
	})
	for poster := range run.posters {
		own := &run.posters[poster]
		goOn[poster] = goOns(w3Bursts, func(struct{}) {
			if run.stop.Load() {
				run.finished.Add(1)
				return
			}
			start := own.count
			for number := start; number < start+burst; number++ {
				count(posted{poster: uint32(poster), number: number, last: number+1 == start+burst})
			}
			own.count = start + burst
		})
	}
	for _, goOn := range goOn {
		for range w3Bursts {
			goOn(struct{}{})
		}
	}
	run.tokens = uint64(run.colors) * w3Bursts
}

func (run *colorsRun) stepW3(poster uint32, number uint64) {
	run.lanes[poster].step(number, run.rounds)
	run.counter.count++
}

func (run *colorsRun) startW4(open opener[uint64]) {
	var post [2]func(uint64)
	for side := range post {
		own, onward := &run.lanes[side], uint64(side)*run.inFlight
		post[side] = open(int(run.inFlight), func(expected uint64) {
			if expected == begin {
				run.postAll(post[0])
				return
			}
			if run.stop.Load() {
				visits := expected / run.inFlight
				run.lanes[0].owe(visits + uint64(side))
				run.lanes[1].owe(visits)
				run.finished.Add(1)
				return
			}
			own.step(expected, run.rounds)
			post[1-side](expected + onward)
		})
	}
	post[0](begin)
	run.tokens = run.inFlight
}

// postAll posts the first messages to the color that calls it, none of which comes back before the last is there.
func (run *colorsRun) postAll(post func(uint64)) {
	for token := range run.inFlight {
		post(token)
	}
}

func (run *colorsRun) startInLine() {
	switch run.workload {
	case "w3-in-line":
		for poster := range run.posters {
			go run.countInLine(uint32(poster))
		}
		run.tokens = uint64(run.colors)
	case "w5":
		for token := range run.transfers {
			go run.transfer(uint64(token))
		}
		run.tokens = run.inFlight
	}
}

func (run *colorsRun) countInLine(poster uint32) {
	number := uint64(0)
	for ; !run.stop.Load(); number++ {
		run.counter.mutex.Lock()
		run.stepW3(poster, number)
		run.counter.mutex.Unlock()
	}
	run.posters[poster].count = number
	run.finished.Add(1)
}

func (run *colorsRun) transfer(token uint64) {
	number := uint64(0)
	for ; !run.stop.Load(); number++ {
		from, to := pairOf(token, number, uint64(run.colors))
		low, high := &run.lanes[min(from, to)], &run.lanes[max(from, to)]
		low.mutex.Lock()
		high.mutex.Lock()
		run.move(&run.lanes[from], &run.lanes[to])
		high.mutex.Unlock()
		low.mutex.Unlock()
	}
	run.transfers[token] = number
	run.finished.Add(1)
}

func (run *colorsRun) move(from, to *lane) {
	fromCount, toCount, fromBalance, toBalance := from.count, to.count, from.balance, to.balance
	from.spin(run.rounds)
	from.balance, to.balance = fromBalance-1, toBalance+1
	from.count, to.count = fromCount+1, toCount+1
}

// pairOf is the two accounts of a token's transfer, as in ledger/transfers.rs.
func pairOf(token, number, accounts uint64) (uint64, uint64) {
	bits := (token<<40 + number) * 0x9E3779B97F4A7C15
	bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
	bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
	bits ^= bits >> 31
	from := (bits >> 32) * accounts >> 32
	other := (bits & 0xFFFFFFFF) * (accounts - 1) >> 32
	if other >= from {
		other++
	}
	return from, other
}

// ops is the callbacks so far, without those that only steer.
func (run *colorsRun) ops() uint64 {
	if run.workload == "w3" || run.workload == "w3-in-line" {
		return atomic.LoadUint64(&run.counter.count)
	}
	sum := uint64(0)
	for index := range run.lanes {
		sum += atomic.LoadUint64(&run.lanes[index].count)
	}
	if run.workload == "w5" {
		sum /= 2
	}
	return sum
}

func (run *colorsRun) measure(secs float64) colorsOutcome {
	time.Sleep(time.Duration(min(max(secs/4, 0.1), 0.5) * 1e9))
	usage, ops, begin := ownUsage(), run.ops(), time.Now()
	time.Sleep(time.Duration(secs * 1e9))
	ops, secs = run.ops()-ops, time.Since(begin).Seconds()
	after := ownUsage()
	run.stop.Store(true)
	outcome := colorsOutcome{Secs: secs, RatePerS: float64(ops) / secs}
	err := run.verify()
	if err == nil && ops == 0 {
		err = fmt.Errorf("no callback ran while it was measured: is the machine busy? pass more --secs")
	}
	if err != nil {
		outcome.Problem = err.Error()
	}
	if ops > 0 {
		each := func(count int64) float64 { return float64(count) / float64(ops) }
		outcome.CPUNsPerOp = each(after.Utime.Nano() + after.Stime.Nano() - usage.Utime.Nano() - usage.Stime.Nano())
		outcome.WakesPerOp = each(after.Nvcsw - usage.Nvcsw)
		outcome.SwitchesPerOp = outcome.WakesPerOp + each(after.Nivcsw-usage.Nivcsw)
	}
	outcome.OrderBreaks = run.orderBreaks()
	return outcome
}

// verify waits until all chains have ended and all that is due has run, and says what is wrong then.
func (run *colorsRun) verify() error {
	const limit = 10 * time.Second
	end := time.Now().Add(limit)
	for run.finished.Load() < run.tokens {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d chains ended within %v: callbacks were lost or starved", run.finished.Load(), run.tokens, limit)
		}
		time.Sleep(time.Millisecond)
	}
	run.settlePosted()
	wrong := run.wrongCount()
	for wrong != nil && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
		wrong = run.wrongCount()
	}
	if wrong != nil {
		return wrong
	}
	units := uint64(0)
	for index := range run.lanes {
		units += run.lanes[index].balance
	}
	if due := uint64(openingBalance * run.colors); units != due {
		return fmt.Errorf("the accounts hold %d units instead of %d: two transfers overlapped on an account", int64(units), due)
	}
	if breaks := run.orderBreaks(); breaks > 0 {
		return fmt.Errorf("%d callbacks ran out of order", breaks)
	}
	if run.ops() == 0 {
		return fmt.Errorf("no callback ran")
	}
	return nil
}

// settlePosted is what the final positions of posters and tokens say that each color must have run.
func (run *colorsRun) settlePosted() {
	colors := uint64(run.colors)
	for index := range run.lanes {
		own := &run.lanes[index]
		switch run.workload {
		case "w2":
			own.due = run.posters[0].count / colors
			if uint64(index) < run.posters[0].count%colors {
				own.due++
			}
		case "w3", "w3-in-line":
			own.due = run.posters[index].count
			run.counter.due += own.due
		}
	}
	for token, transfers := range run.transfers {
		for number := range transfers {
			from, to := pairOf(uint64(token), number, colors)
			run.lanes[from].due++
			run.lanes[to].due++
		}
	}
}

func (run *colorsRun) wrongCount() error {
	for index := range run.lanes {
		if err := run.lanes[index].wrongCount(index); err != nil {
			return err
		}
	}
	return run.counter.wrongCount(run.colors)
}

func (l *lane) wrongCount(index int) error {
	if count := atomic.LoadUint64(&l.count); count != l.due {
		return fmt.Errorf("color %d counted %d callbacks and %d were due: two overlapped, or some were lost", index, count, l.due)
	}
	return nil
}

func (run *colorsRun) orderBreaks() uint64 {
	sum := run.counter.breaks
	for index := range run.lanes {
		sum += run.lanes[index].breaks
	}
	return sum
}

// ownUsage is what this process has used so far.
func ownUsage() syscall.Rusage {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage
}
