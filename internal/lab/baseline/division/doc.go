// Package division holds policies that divide a node's CPU among its pods: equal shares, a strict
// partition, weighted max-min fairness, max-min fairness with credits (Karma), and the rule that
// MBCAS began with. They estimate demand and resize pods with the code that MBCAS ships, so that
// only the rule of division differs.
package division
