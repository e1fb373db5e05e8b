package player

import (
	"errors"
	"fmt"

	"github.com/mbcas/mbcas/test/internal/cgroup"
)

// IdleHogs puts the pods of all hogs into the kernel's idle class. leave, which has to be called
// whatever happens in between, gives them the class that they had. It returns an error if one has
// left the class meanwhile: what was measured is then of another class.
func (p Player) IdleHogs() (leave func() error, err error) {
	var pods []idlePod
	for _, hog := range p.hogs() {
		_, files, err := p.files(hog)
		if err != nil {
			return nil, fmt.Errorf("hog %s: %w", hog, err)
		}
		pods = append(pods, idlePod{hog, files})
	}
	return enterIdle(pods)
}

// idlePod is the pod of a hog.
type idlePod struct {
	hog   string
	files cgroup.Container
}

// enterIdle puts pods into the idle class, or none where one of them cannot be.
func enterIdle(pods []idlePod) (leave func() error, err error) {
	var entered []func() error
	leave = func() (err error) {
		for _, restore := range entered {
			err = errors.Join(err, restore())
		}
		return err
	}
	for _, p := range pods {
		before, err := p.files.PodClass()
		if err == nil {
			entered = append(entered, func() error { return p.restore(before) })
			err = p.files.SetPodClass(cgroup.Class{Idle: true})
		}
		if err != nil {
			text := "pod of hog %s cannot enter the idle class: %w; does this kernel have cpu.idle (Linux 5.15)?"
			_ = leave() // what could not be written need not be restored
			return nil, fmt.Errorf(text, p.hog, err)
		}
	}
	return leave, nil
}

// restore gives a pod the class and weight that it had.
func (p idlePod) restore(before cgroup.Class) error {
	now, err := p.files.PodClass()
	if err == nil && !now.Idle {
		err = errors.New("another program took it out, so the figures of this run are not of the class")
	}
	if restored := p.files.SetPodClass(before); restored != nil {
		err = errors.Join(err, fmt.Errorf("restore it: %w; delete the pod if it is still there", restored))
	}
	if err != nil {
		return fmt.Errorf("idle class of the pod of hog %s: %w", p.hog, err)
	}
	return nil
}
