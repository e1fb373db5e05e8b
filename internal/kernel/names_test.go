package kernel

import (
	"strings"
	"testing"
)

func TestPodOf(t *testing.T) {
	const uid, key = "8dd0a7f1-0b5c-4e2f-9a44-0123456789ab", "8dd0a7f10b5c4e2f9a440123456789ab"
	under := strings.ReplaceAll(uid, "-", "_")
	for name, want := range map[string]string{
		"pod" + uid:                                          key,
		"kubepods-pod" + under + ".slice":                    key,
		"kubepods-burstable-pod" + under + ".slice":          key,
		"kubelet-kubepods-besteffort-pod" + under + ".slice": key,
		"pod" + key: key, // a static pod's hash
		"kubepods-burstable-pod" + key + ".slice": key,
		"podmy-own-uid":            "myownuid", // set in a static pod's manifest
		"kubepods.slice":           "",
		"kubepods-burstable.slice": "",
		"burstable":                "",
		"pod":                      "",
		"cri-containerd-1.scope":   "",
	} {
		if got, ok := podOf(name); got != want || ok != (want != "") {
			t.Errorf("podOf(%q) = %q, %v; want %q", name, got, ok, want)
		}
	}
	if podKey(uid) != podKey(under) || podKey(uid) != key {
		t.Errorf("keys %q, %q", podKey(uid), podKey(under))
	}
}

func TestContainerOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for name, want := range map[string]string{
		id:                                  id,
		"cri-containerd-" + id + ".scope":   id,
		"crio-" + id:                        id,
		"crio-" + id + ".scope":             id,
		"docker-" + id + ".scope":           id,
		"x-pod1.slice:cri-containerd:" + id: id,
		"crio-conmon-" + id + ".scope":      "",
	} {
		if got, ok := containerOf(name); got != want || ok != (want != "") {
			t.Errorf("containerOf(%q) = %q, %v; want %q", name, got, ok, want)
		}
		if !isContainerOrService(name) {
			t.Errorf("isInside(%q) = false", name)
		}
	}
	for _, name := range []string{"system.slice", "kubelet", "kubelet.slice", "podruntime", "docker"} {
		if isContainerOrService(name) {
			t.Errorf("isInside(%q) = true", name)
		}
	}
}
