//go:build linux

package player

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/test/internal/cgroup"
)

// hogPods are two pods of hogs, the first with the class 0, and the files of their class.
func hogPods(t *testing.T) (pods []idlePod, files []string) {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "cgroup.controllers"), "cpu\n")
	for i, class := range []string{"0\n", "1\n"} {
		name := string(rune('a' + i))
		pod := filepath.Join(root, "kubepods", "burstable", "pod-"+name)
		files = append(files, filepath.Join(pod, "cpu.idle"))
		write(files[i], class)
		write(filepath.Join(pod, "cpu.weight"), "41\n")
		write(filepath.Join(pod, "container-"+name, "cpu.max"), "max 100000\n")
	}
	node, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, hog := range []string{"a", "b"} {
		c, err := node.Find("container-" + hog)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, idlePod{hog, c})
	}
	return pods, files
}

// classes are the contents of the files.
func classes(t *testing.T, files []string) (all string) {
	t.Helper()
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all += strings.TrimSpace(string(text))
	}
	return all
}

// TestIdleHogsAreRestored: pods are in the class from enterIdle to leave, and have the class that they
// had afterwards, also where one of them cannot enter it.
func TestIdleHogsAreRestored(t *testing.T) {
	pods, files := hogPods(t)
	leave, err := enterIdle(pods)
	if got := classes(t, files); err != nil || got != "11" {
		t.Fatalf("classes %s, %v; want both in the idle class", got, err)
	}
	weight := filepath.Join(filepath.Dir(files[0]), "cpu.weight")
	if err := os.WriteFile(weight, []byte("100\n"), 0o644); err != nil { // the kernel's default after the class
		t.Fatal(err)
	}
	if err := leave(); err != nil || classes(t, files) != "01" || classes(t, []string{weight}) != "41" {
		t.Errorf("classes %s, weight %s, %v; want them as before",
			classes(t, files), classes(t, []string{weight}), err)
	}

	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := enterIdle(pods); err == nil || !strings.Contains(err.Error(), "hog b cannot enter") {
		t.Errorf("error %v, want one about hog b", err)
	}
	if got := classes(t, files[:1]); got != "0" {
		t.Errorf("the first pod has the class %s although the second could not enter", got)
	}
}

// TestLeftIdleClass: a pod that another program took out of the class is an error, and so is one that
// is gone; the others are restored.
func TestLeftIdleClass(t *testing.T) {
	for want, change := range map[string]func(file string) error{
		"another program": func(file string) error { return os.WriteFile(file, []byte("0\n"), 0o644) },
		"restore it":      os.Remove,
	} {
		pods, files := hogPods(t)
		leave, err := enterIdle(pods)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(files[1]); err != nil {
			t.Fatal(err)
		}
		err = leave()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hog b") {
			t.Errorf("error %v, want %q about hog b", err, want)
		}
		if got := classes(t, files[:1]); got != "0" {
			t.Errorf("the first pod has the class %s: want it restored", got)
		}
	}
}
