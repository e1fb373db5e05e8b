//go:build linux

package weights

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/weights/wire"
)

const (
	// checkInterval is the least time from one look at a pod's values to the next. What another writer changed is set
	// again then, so no more often than this.
	checkInterval = 3 * time.Second
	// maxRewrites is how often that is done, until the pod is left as it is.
	maxRewrites = 5
	// calmAfter is the time without a change by another writer after which the count starts anew. The kubelet writes
	// the weight with each resize of the pod, which comes less often.
	calmAfter = 30 * time.Second
	// resizeGrace is how long after the agent has said that MBCAS resizes a pod the kubelet's own value is no contest:
	// the next look at the pod comes within it.
	resizeGrace = 2 * checkInterval
	// minRetry and maxRetry bound the back-off of a restore that failed.
	minRetry, maxRetry = time.Second, time.Minute
)

// Keeper gives pods the values of their settings, and their original values back. One goroutine at a time uses it.
type Keeper struct {
	tree   *Tree
	record Record
	log    *slog.Logger

	originals map[string]entry
	unsaved   bool   // the record on disk is another
	failure   string // of the last attempt to save it, as logged; "": it was saved
	pods      map[string]*pod
	retries   map[string]retry // of restores that failed
	heard     time.Time        // of the last request; zero: no pod has a setting
	rewrites  uint64
}

// pod is one that a request names and that the tree has.
type pod struct {
	dir         *os.File
	want        values
	idle        bool      // as the setting says
	last        values    // as last read or written
	checked     time.Time // when the values were last read
	resizing    time.Time // when the agent last said that MBCAS resizes the pod
	rewrites    int
	rewrittenAt time.Time
}

func (p *pod) contested() bool { return p.rewrites > maxRewrites }

// NewKeeper restores what an earlier run of the program has left, so it returns a node with original values. What
// cannot be restored is logged and tried again by Apply and RestoreUnresponsive.
func NewKeeper(tree *Tree, record Record, log *slog.Logger) (*Keeper, error) {
	originals, err := record.load()
	if err != nil {
		return nil, err
	}
	k := &Keeper{
		tree: tree, record: record, log: log, originals: originals,
		pods: map[string]*pod{}, retries: map[string]retry{},
	}
	if len(originals) > 0 {
		log.Info("an earlier run left pods with other values than their own, so they are restored", "pods", len(originals))
	}
	if err := k.RestoreAll(); err != nil {
		log.Error("not every pod is restored; it is tried again", "error", err)
	}
	return k, nil
}

// Apply carries out a request. Pods that it does not name are restored.
func (k *Keeper) Apply(now time.Time, req wire.Request) wire.Reply {
	k.heard = now
	var reply wire.Reply
	refuse := func(uid string, why wire.Refusal) {
		reply.Refused = append(reply.Refused, wire.Refused{UID: uid, Why: why})
	}
	named := make(map[string]bool, len(req.Settings))
	for _, s := range req.Settings {
		if !validUID(s.UID) || s.Weight < wire.MinWeight || s.Weight > wire.MaxWeight || named[s.UID] {
			refuse(s.UID[:min(len(s.UID), 36)], wire.Invalid)
			continue
		}
		named[s.UID] = true
	}
	k.drop(now, named)
	due := k.look(now, req, named, refuse)
	recorded := k.save() // once for all of them
	for uid := range named {
		p := k.pods[uid]
		switch {
		case p == nil: // refused
			continue
		case p.contested():
			refuse(uid, wire.Contested)
			continue
		case !due[uid]:
		case !recorded:
			refuse(uid, wire.NotRecorded)
			continue
		default:
			if err := k.write(p); err != nil {
				refuse(uid, k.failed(uid, err))
				continue
			}
		}
		if p.idle {
			reply.Idle++
		} else {
			reply.Weighted++
		}
	}
	reply.Rewrites = k.rewrites
	return reply
}

// look takes in the settings and reads the pods whose values are due, which it returns. It writes nothing.
func (k *Keeper) look(
	now time.Time, req wire.Request, named map[string]bool, refuse func(string, wire.Refusal),
) (due map[string]bool) {
	due = map[string]bool{}
	seen := map[string]bool{}
	for _, s := range req.Settings {
		if !named[s.UID] || seen[s.UID] {
			continue
		}
		seen[s.UID] = true
		p, err := k.take(now, s)
		if err == nil && !p.contested() && (p.want != p.last || now.Sub(p.checked) >= checkInterval) {
			due[s.UID] = true
			err = k.check(now, s.UID, p)
		}
		if err != nil {
			refuse(s.UID, k.failed(s.UID, err))
			delete(named, s.UID)
		}
	}
	return due
}

// take notes a setting, and the original values of a pod that has none recorded.
func (k *Keeper) take(now time.Time, s wire.Setting) (*pod, error) {
	p := k.pods[s.UID]
	if p == nil {
		dir, err := k.tree.pod(s.UID)
		if err != nil {
			return nil, err
		}
		has, err := k.tree.read(dir)
		if err != nil {
			return nil, errors.Join(err, dir.Close())
		}
		if e, known := k.originals[s.UID]; !known || k.tree.externallyChanged(e, has) {
			k.originals[s.UID], k.unsaved = entry{values: has}, true
		}
		p = &pod{dir: dir, last: has}
		k.pods[s.UID] = p
	}
	delete(k.retries, s.UID)
	if s.Resizing {
		p.resizing = now
	}
	p.want, p.idle = k.tree.target(s, k.originals[s.UID].values), s.Idle
	return p, nil
}

// check reads the values of a pod, and has what will be written recorded.
func (k *Keeper) check(now time.Time, uid string, p *pod) error {
	has, err := k.tree.read(p.dir)
	if err != nil {
		return err
	}
	p.checked = now
	if has != p.last {
		k.rewritten(now, uid, p, has)
		p.last = has
	}
	if e := k.originals[uid]; !p.contested() && !e.wrote(p.want) {
		e.Wrote = [2]values{p.last, p.want}
		k.originals[uid], k.unsaved = e, true
	}
	return nil
}

// write gives a pod its values. After a failure, last is what it left.
func (k *Keeper) write(p *pod) error {
	err := k.tree.write(p.dir, p.want)
	p.last = p.want
	if err != nil {
		if has, unread := k.tree.read(p.dir); unread == nil {
			p.last = has
		}
	}
	return err
}

// rewritten notes that another writer has changed the values. A weight that it gave the pod is the one to come back to.
// What the kubelet writes with a resize that MBCAS asked for is no contest.
func (k *Keeper) rewritten(now time.Time, uid string, p *pod, has values) {
	k.rewrites++
	e := k.originals[uid]
	if has == e.values && now.Sub(p.resizing) <= resizeGrace {
		return
	}
	if now.Sub(p.rewrittenAt) > calmAfter {
		p.rewrites = 0
	}
	p.rewrites, p.rewrittenAt = p.rewrites+1, now
	if !has.Idle && !(p.last.Idle && k.tree.atDefault(has)) && has != e.values {
		k.originals[uid], k.unsaved = entry{values: has, Wrote: e.Wrote}, true
	}
	if p.contested() {
		k.log.Warn("another program writes the CPU weight of a pod again and again, so the pod is left as it is; find that "+
			"program, or take mbcas.io/weights from the namespace", "uid", uid, "times", p.rewrites)
	}
}

// failed is the refusal for an error about a pod. It forgets a pod that is gone.
func (k *Keeper) failed(uid string, err error) wire.Refusal {
	if errors.Is(err, errNoPod) || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		k.forget(uid)
		return wire.NotFound
	}
	k.log.Warn("the CPU weight of a pod is not written", "uid", uid, "error", err)
	return wire.WriteFailed
}

func (k *Keeper) forget(uid string) {
	if p := k.pods[uid]; p != nil {
		_ = p.dir.Close() // it was only read
	}
	delete(k.pods, uid)
	delete(k.retries, uid)
	if _, known := k.originals[uid]; known {
		delete(k.originals, uid)
		k.unsaved = true
	}
}

// drop restores the pods that are not named, those that failed before after a back-off.
func (k *Keeper) drop(now time.Time, named map[string]bool) {
	for uid := range maps.Clone(k.originals) {
		r := k.retries[uid]
		if named[uid] || now.Before(r.at) {
			continue
		}
		if err := k.restore(uid); err != nil {
			r = r.next(now)
			k.retries[uid] = r
			k.log.Error("the original CPU weight of a pod does not come back; it is tried again", "uid", uid,
				"after", r.at.Sub(now).Round(time.Millisecond), "error", err)
		}
	}
}

// retry is when a restore that failed is tried again.
type retry struct {
	at    time.Time
	after time.Duration // without jitter
}

// next is the retry after one more failure: twice as late, plus or minus a quarter.
func (r retry) next(now time.Time) retry {
	after := min(max(2*r.after, minRetry), maxRetry)
	return retry{now.Add(after*3/4 + rand.N(after/2)), after}
}

// restore gives a pod its original values back, and forgets it. A pod that has other values than this program wrote has
// those of another writer, and keeps them.
func (k *Keeper) restore(uid string) error {
	e, p := k.originals[uid], k.pods[uid]
	var dir *os.File
	var err error
	if p != nil {
		dir = p.dir
	} else if dir, err = k.tree.pod(uid); err == nil { // of an earlier run
		defer dir.Close()
	}
	if err == nil && (p == nil || !p.contested()) {
		err = k.restoreIn(dir, uid, e)
	}
	if err != nil && !errors.Is(err, errNoPod) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("restore pod %s: %w", uid, err)
	}
	k.forget(uid)
	return nil
}

func (k *Keeper) restoreIn(dir *os.File, uid string, e entry) error {
	has, err := k.tree.read(dir)
	if err != nil {
		return err
	}
	if k.tree.externallyChanged(e, has) {
		k.log.Info("another program has written the CPU weight of a pod, so the pod keeps it", "uid", uid,
			"has", has, "original", e.values)
		return nil
	}
	return k.tree.write(dir, e.values)
}

// RestoreAll gives every pod its original values back. The error names those that failed, which stay in the record.
func (k *Keeper) RestoreAll() error {
	k.heard = time.Time{}
	var errs []error
	for uid := range maps.Clone(k.originals) {
		errs = append(errs, k.restore(uid))
	}
	if k.unsaved {
		errs = append(errs, k.record.save(k.originals))
		k.unsaved = errs[len(errs)-1] != nil
	}
	return errors.Join(errs...)
}

// RestoreUnresponsive restores every pod when no request has come for so long, and tries again what failed.
func (k *Keeper) RestoreUnresponsive(now time.Time, after time.Duration) {
	if !k.heard.IsZero() && now.Sub(k.heard) < after {
		return
	}
	if !k.heard.IsZero() {
		k.log.Warn("the agent is unresponsive, so every pod is restored", "for", now.Sub(k.heard).Round(time.Second),
			"pods", len(k.pods))
	}
	k.heard = time.Time{}
	k.drop(now, nil)
	k.save()
}

// save writes the record if it is out of date, and says whether it is on disk. A failure is logged when it is another than
// the one before: it is tried again with each request.
func (k *Keeper) save() bool {
	if !k.unsaved {
		return true
	}
	if err := k.record.save(k.originals); err != nil {
		if k.failure != err.Error() {
			k.log.Error("nothing new is written to cgroups until the record is saved", "error", err)
		}
		k.failure = err.Error()
		return false
	}
	k.unsaved, k.failure = false, ""
	return true
}
