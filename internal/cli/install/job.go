package install

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
)

const (
	restoreName = "mbcas-restore"          // of the CronJob, and how the names of Jobs begin
	template    = "CronJob " + restoreName // as nameOf
	// startWithin is how long the pod of the Job may take to start.
	startWithin = 3 * time.Minute
)

// runRestore runs the Job that pauses MBCAS and restores every pod, and shows its progress.
func (r *run) runRestore(ctx context.Context, timeout time.Duration) error {
	job, err := r.runningJob(ctx)
	if err != nil {
		return err
	}
	if job != nil {
		r.say("Job %s restores the declared limits of all pods already; following it.", job.Name)
	} else if job, err = r.createJob(ctx, timeout); err != nil {
		return err
	} else {
		r.say("Restoring the declared limits of all pods: Job %s.", job.Name)
	}
	w := &jobWatch{run: r, job: job, started: r.Now(), timeout: timeout}
	return r.until(ctx, timeout+startWithin, w.missing)
}

// jobWatch follows one Job.
type jobWatch struct {
	*run
	job      *batchv1.Job
	started  time.Time
	timeout  time.Duration // after which its program ends by itself
	followed bool          // its log has been shown
}

// missing says what the Job still has to do; "": it is complete.
func (w *jobWatch) missing(ctx context.Context) (string, error) {
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.job), w.job); err != nil {
		return "", fmt.Errorf("read Job %s: %w", w.job.Name, err)
	}
	pods := &corev1.PodList{}
	err := w.Client.List(ctx, pods, client.InNamespace(w.System), client.MatchingLabels{"job-name": w.job.Name})
	if err != nil {
		return "", fmt.Errorf("list the pods of Job %s: %w", w.job.Name, err)
	}
	begun := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodPending })
	if begun >= 0 && !w.followed {
		w.followed = true
		w.follow(ctx, &pods.Items[begun], w.timeout)
	}
	switch {
	case finished(w.job, batchv1.JobComplete):
		return "", nil
	case finished(w.job, batchv1.JobFailed):
		return "", fmt.Errorf("the Job %s failed; its log names the pods: kubectl -n %s logs job/%[1]s", w.job.Name,
			w.System)
	case begun >= 0:
		return "the Job has not ended", nil
	}
	why := doctor.WhyNotReady(pods.Items, w.job.Name)
	if w.Now().Sub(w.started) > startWithin {
		w.deleteJob(ctx, w.job)
		return "", fmt.Errorf("the pod of Job %s did not start in %v%s; see: kubectl -n %s get events", w.job.Name, startWithin,
			why, w.System)
	}
	return "the pod of the Job starts" + why, nil
}

// runningJob is the Job of an uninstallation that was interrupted, or that runs beside this one; nil: there is none. Two
// would resize the same pods.
func (r *run) runningJob(ctx context.Context) (*batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	ours := client.MatchingLabels{"app.kubernetes.io/name": "mbcas", "app.kubernetes.io/component": "restore"}
	if err := r.Client.List(ctx, jobs, client.InNamespace(r.System), ours); err != nil {
		return nil, fmt.Errorf("list Jobs of namespace %s: %w", r.System, err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.DeletionTimestamp == nil && !finished(job, batchv1.JobComplete) && !finished(job, batchv1.JobFailed) {
			return job, nil
		}
	}
	return nil, nil
}

// createJob makes a Job of the template of the installation.
func (r *run) createJob(ctx context.Context, timeout time.Duration) (*batchv1.Job, error) {
	cron, err := cluster.Get(ctx, r.Client, &batchv1.CronJob{}, r.key(restoreName))
	if err != nil {
		return nil, err
	}
	if cron == nil {
		return nil, fmt.Errorf("another client has just deleted CronJob %s of namespace %s", restoreName, r.System)
	}
	job := &batchv1.Job{Spec: cron.Spec.JobTemplate.Spec}
	job.Namespace, job.GenerateName = r.System, restoreName+"-"
	job.Labels, job.Annotations = cron.Spec.JobTemplate.Labels, cron.Spec.JobTemplate.Annotations
	for i := range job.Spec.Template.Spec.Containers {
		env := job.Spec.Template.Spec.Containers[i].Env
		for j := range env {
			if env[j].Name == "MBCAS_RESTORE_TIMEOUT" {
				env[j].Value = timeout.String()
			}
		}
	}
	if err := r.Client.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("create a Job in namespace %s: %w", r.System, err)
	}
	return job, nil
}

// deleteJob deletes a Job with its pods.
func (r *run) deleteJob(ctx context.Context, job *batchv1.Job) {
	err := r.Client.Delete(ctx, job, client.PropagationPolicy("Background"))
	if client.IgnoreNotFound(err) != nil {
		r.say("delete Job %s: %v", job.Name, err)
	}
}

func finished(job *batchv1.Job, as batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == as && c.Status == corev1.ConditionTrue
	})
}

// follow shows the log of the Job without its audit lines, for so long at most: a node that is lost never ends it. What
// cannot be read is not shown: the state of the Job tells how it went.
func (r *run) follow(ctx context.Context, pod *corev1.Pod, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	log, err := r.Follow(ctx, pod)
	if err != nil {
		r.say("the log of pod %s cannot be read: %v", pod.Name, err)
		return
	}
	defer log.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if line := lines.Text(); !strings.Contains(line, `"audit":true`) {
			r.say("  %s", line)
		}
	}
}
