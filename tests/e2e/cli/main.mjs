import { runAll } from './harness.mjs';
import './evaluation.mjs';
import './campaign.mjs';
import './generate.mjs';
import './instruction.mjs';
import './hostile.mjs';
import './http.mjs';
import './interrupt.mjs';
import './limits.mjs';
import './setup.mjs';
import './shims.mjs';
import './strangers.mjs';

await runAll();
