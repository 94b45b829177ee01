/** `rowcast/auth`: signing and verifying for servers and senders that are wired by hand. */
export {
  type AnswerToSign,
  type AnswerToVerify,
  signAnswer,
  type VerifiedAnswer,
  verifyAnswer,
} from './answers.ts';
export { contentDigest, digestFits } from './digest.ts';
export { type AuthMode, type AuthOptions, createKeyring, type Key, type KeyOptions, type Keyring } from './keys.ts';
export {
  type RequestToSign,
  type RequestToVerify,
  type Sender,
  type SentRequest,
  type SigningOptions,
  signRequest,
  type Verified,
  verifyRequest,
} from './requests.ts';
