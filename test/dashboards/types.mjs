// Writes each dashboard as a constant of Grafana's type, for the compiler to check; and one that is wrong, which it must refuse.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';

const from = '../../monitoring/dashboards';
mkdirSync('out', { recursive: true });
const typed = (json) => `import type { Dashboard } from '@grafana/schema';\nexport const dashboard: Dashboard = ${json};\n`;
const files = readdirSync(from).filter((f) => f.endsWith('.json'));
if (files.length === 0) {
  throw new Error(`no dashboards in ${from}: run make generate`);
}
for (const file of files) {
  writeFileSync(`out/${file.replace('.json', '.ts')}`, typed(readFileSync(`${from}/${file}`, 'utf8')));
}
const wrong = JSON.parse(readFileSync(`${from}/${files[0]}`, 'utf8'));
wrong.title = 7;
writeFileSync('out/wrong.ts', typed(JSON.stringify(wrong)).replace('export', '// @ts-expect-error: the title is no text\nexport'));
