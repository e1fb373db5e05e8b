package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// kubectlStub notes what it is asked, and answers for the Job what the test says: a phase per line, of which
// the last stays.
const kubectlStub = `#!/bin/sh
echo "$*" >> "$NOTES"
case "$*" in
*"create job"*)
	echo '{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers":
		[{"name": "restore", "image": "x", "env": [{"name": "MBCAS_RESTORE_TIMEOUT", "value": "30m"},
		{"name": "MBCAS_RESTORE_WORKERS", "value": "32"}, {"name": "MBCAS_RESTORE_RATE", "value": "200"}]}]}}}}'
	;;
"patch --local"*) "$REAL" "$@" ;;
"create -f -") grep -A 1 MBCAS_RESTORE_ | tr -d '\n' >> "$NOTES" ;;
*"get pods"*)
	head -n 1 "$PHASES" | tr -d '\n'
	if test "$(wc -l < "$PHASES")" -gt 1; then sed -i 1d "$PHASES"; fi
	;;
*"get --raw"*)
	echo "{\"resources\":[{\"name\":\"${SERVED:-}\"}]}"
	exit "${UNREACHABLE:-0}"
	;;
*"delete mutating"*) exit "${REFUSED:-0}" ;;
*" logs "*)
	echo '{"msg":"resize","audit":true}'
	echo "2 pods restored"
	;;
esac
`

// uninstall runs the script with a stub of kubectl, to which the Job has these phases, and returns its output and what it
// asked for.
func uninstall(t *testing.T, phases []string, env ...string) (output, asked string, err error) {
	t.Helper()
	dir := t.TempDir()
	notes, answers, stub := filepath.Join(dir, "notes"), filepath.Join(dir, "phases"), filepath.Join(dir, "kubectl")
	for file, text := range map[string]string{stub: kubectlStub, answers: strings.Join(phases, "\n") + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "uninstall.sh")
	cmd.Env = append(os.Environ(), "KUBECTL="+stub, "REAL="+kubectl(t), "NOTES="+notes, "PHASES="+answers, "POLL=0")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	text, unread := os.ReadFile(notes)
	if unread != nil {
		t.Fatal(unread)
	}
	return string(out), string(text), err
}

// TestUninstall: the script restores in a Job of its own, with the settings that it was given, shows the
// progress without the audit lines, and deletes nothing unless the Job succeeds or FORCE=1 is set. The
// Job is made of the template by the real kubectl.
func TestUninstall(t *testing.T) {
	for name, c := range map[string]struct {
		phases  []string
		env     []string
		deletes bool
		shows   bool
	}{
		"succeeds":         {[]string{"", "Pending", "Running", "Succeeded"}, nil, true, true},
		"was not seen":     {[]string{"Pending", "Succeeded"}, nil, true, true},
		"fails":            {[]string{"Running", "Failed"}, nil, false, true},
		"fails, by force":  {[]string{"Running", "Failed"}, []string{"FORCE=1"}, true, true},
		"does not start":   {[]string{"Pending"}, nil, false, false},
		"with other times": {[]string{"Running", "Succeeded"}, []string{"TIMEOUT=7m", "WORKERS=3", "RATE=9"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			out, asked, err := uninstall(t, c.phases, c.env...)
			if deleted := strings.Contains(asked, "delete -k"); deleted != c.deletes || (err == nil) != c.deletes {
				t.Errorf("deleted %v, error %v\n%s\nasked:\n%s", deleted, err, out, asked)
			}
			if shown := strings.Contains(out, "2 pods restored"); shown != c.shows || strings.Contains(out, "audit") {
				t.Errorf("output:\n%s", out)
			}
			want := []string{"30m", `"32"`, `"200"`}
			if name == "with other times" {
				want = []string{"7m", `"3"`, `"9"`}
			}
			made := strings.Join(strings.Fields(asked), " ")
			for i, setting := range []string{"TIMEOUT", "WORKERS", "RATE"} {
				if env := "name: MBCAS_RESTORE_" + setting + " value: " + want[i]; !strings.Contains(made, env) {
					t.Errorf("the Job lacks %q:\n%s", env, asked)
				}
			}
			if !strings.Contains(made, "--from=cronjob/mbcas-restore") {
				t.Errorf("asked:\n%s\nwant a Job of the CronJob", asked)
			}
		})
	}
}

// TestUninstallDeletesComponents: the script deletes what the components with roles have added, and says what stays.
func TestUninstallDeletesComponents(t *testing.T) {
	out, asked, err := uninstall(t, []string{"Succeeded"})
	if err != nil || !strings.Contains(out, "and act again once MBCAS is installed again") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, dir := range []string{"components/plugin-users", "components/secure-metrics/roles"} {
		for _, o := range render(t, dir) {
			if o.GetNamespace() != "" { // it goes with the namespace
				continue
			}
			kind, _, _ := strings.Cut(strings.ToLower(identity(o)), " ")
			if !regexp.MustCompile(`(?m)^delete ` + kind + `( .*)? ` + o.GetName() + `( .*)? --ignore-not-found$`).MatchString(asked) {
				t.Errorf("%s %s of %s stays; the script asks:\n%s", kind, o.GetName(), dir, asked)
			}
		}
	}
}

// TestUninstallDeletesThePolicy: the policy of the component default-limits is deleted where the API server serves its
// kind. A refusal, or no answer about what is served, ends the script with an error.
func TestUninstallDeletesThePolicy(t *testing.T) {
	for name, c := range map[string]struct {
		env            []string
		deletes, fails bool
	}{
		"served":     {[]string{"SERVED=mutatingadmissionpolicies"}, true, false},
		"not served": {[]string{"SERVED=validatingadmissionpolicies"}, false, false},
		"refused":    {[]string{"SERVED=mutatingadmissionpolicies", "REFUSED=1"}, true, true},
		"no answer":  {[]string{"UNREACHABLE=1"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			out, asked, err := uninstall(t, []string{"Succeeded"}, c.env...)
			if deletes := strings.Contains(asked, "delete mutating"); deletes != c.deletes || (err != nil) != c.fails {
				t.Errorf("asked for the policy: %v, error %v\n%s", deletes, err, out)
			}
		})
	}
}
